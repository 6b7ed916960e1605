//! The demo keeps what it shows.

use std::process::Command;

fn demo(args: &[&str]) -> std::process::Output {
    let semel = env!("CARGO_BIN_EXE_semel");
    Command::new(semel).arg("demo").args(args).output().expect("the binary runs")
}

#[test]
fn with_a_bank_that_takes_keys_every_order_is_charged_once() {
    let output = demo(&["--orders", "30", "--copies", "5", "--lost-replies", "50"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find(|line| line.contains("takes key")).expect("the last line");
    let figures: Vec<&str> = line.split_whitespace().rev().take(3).collect();
    assert_eq!(figures, ["150/150", "0", "30"], "{text}");
}

#[test]
fn bad_input_is_a_usage_error_that_names_the_range() {
    for bad in [["--orders", "0"], ["--copies", "x"], ["--lost-replies", "100"]] {
        let output = demo(&bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(bad[0]), "{text}");
    }
}
