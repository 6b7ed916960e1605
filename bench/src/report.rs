//! Formats figures.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A histogram of nanoseconds, up to a minute, three digits.
pub fn nanoseconds() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid")
}

/// `p50 / p99 / max` in microseconds.
pub fn latency(histogram: &Histogram<u64>) -> String {
    let us = |ns: u64| ns as f64 / 1000.0;
    let (p50, p99) = (histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99));
    format!("p50 {:.2} µs, p99 {:.2} µs, max {:.0} µs", us(p50), us(p99), us(histogram.max()))
}

/// The CPU time of all threads of this process so far. Other processes on the machine hardly change it.
pub fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.try_into().expect("CPU time does not run backwards")
}

/// Median, minimum and maximum.
pub fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Median and range as text: `median (minimum–maximum)`, or the value if there is only one.
pub fn range(values: impl Iterator<Item = f64>, digits: usize) -> String {
    let mut values: Vec<_> = values.collect();
    let (middle, low, high) = spread(&mut values);
    if values.len() == 1 {
        return format!("{middle:.digits$}");
    }
    format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})")
}

/// The median.
pub fn middle(values: impl Iterator<Item = f64>) -> f64 {
    spread(&mut values.collect::<Vec<_>>()).0
}

/// Prints one line: name, figure, goal, and whether it is met.
pub fn line(what: &str, figure: &str, goal: &str, met: Option<bool>) {
    let verdict = match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "",
    };
    println!("{what:<34} {figure:<52} {goal:<12} {verdict}");
}
