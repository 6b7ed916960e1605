//! JSON in one spelling, with numbers as they were sent.
