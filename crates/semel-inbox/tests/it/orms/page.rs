//! The page prints the code that is tested here.

const PAGE: &str = include_str!("../../../../../docs/inbox-orms.md");

#[test]
fn the_page_prints_the_code_that_is_tested() {
    let files = [include_str!("diesel_async.rs"), include_str!("sea_orm.rs")];
    for file in files {
        let title = file.lines().next().unwrap();
        assert!(
            PAGE.contains(&format!("```rust\n{file}```\n")),
            "copy the file that begins with `{title}` to docs/inbox-orms.md"
        );
    }
}

#[test]
fn the_page_names_the_versions_that_are_tested() {
    let manifest = include_str!("../../../Cargo.toml");
    for orm in ["diesel = ", "diesel-async = ", "sea-orm = "] {
        let line = manifest.lines().find(|line| line.starts_with(orm)).unwrap();
        assert!(PAGE.contains(line), "copy to docs/inbox-orms.md: {line}");
    }
}
