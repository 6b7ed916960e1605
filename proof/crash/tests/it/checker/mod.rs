//! The checker reports a broken invariant by its name, and reports nothing about good histories.

mod good_histories;
mod history_builder;
mod violations;
