//! Expands the list of HTTP cases into tests.

use super::{ALL, HttpTarget};
use crate::run::runtime;

/// Expands every HTTP case into a test with the case's name.
///
/// Takes an expression that makes a [`HttpTarget`](crate::http::HttpTarget). It is evaluated in an async
/// context, once for each test. A case that the target does not support passes, and prints so.
///
/// ```text
/// semel_conformance::http_tests!(MyTarget::open().await);
/// ```
#[macro_export]
macro_rules! http_tests {
    ($open:expr $(,)?) => {
        $crate::__for_each_case! { [$crate::__http_tests] [$open] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __http_tests {
    ([$open:expr] $($subject:ident {
        $($case:ident $(needs $ability:ident)? $says:literal $peers:tt)*
    })*) => {
        $($(
            #[test]
            fn $case() {
                let name = concat!(stringify!($subject), "::", stringify!($case));
                $crate::http::__run(name, async { $open });
            }
        )*)*
    };
}

/// Runs one case on a runtime of its own.
#[doc(hidden)]
pub fn __run<D: HttpTarget>(name: &str, open: impl Future<Output = D>) {
    let case = ALL.iter().find(|case| case.name() == name).expect("one list names both");
    runtime().block_on(async {
        let target = open.await;
        match case.missing_ability(&target) {
            None => case.check(&target).await,
            Some(ability) => println!("not shown: {name}: the target does not support {ability}"),
        }
    });
}
