//! Every relative link in a Markdown page leads to a file that exists, and to a heading in it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, ensure};

use crate::gate::{GateRun, GateStage, lint};

pub(crate) const STAGE: GateStage =
    GateStage { name: "links", fix: "correct the links named above", run };

fn run(gate: &GateRun) -> Result<()> {
    let root = gate.workspace.root();
    let mut broken = 0;
    for page in lint::files(&gate.workspace)?.iter().filter(|file| is_page(file)) {
        let Ok(text) = fs::read_to_string(root.join(page)) else { continue };
        for (line, link) in links(&text) {
            if !leads_somewhere(root, page, &text, link) {
                println!("{page}:{line}: broken link `{link}`");
                broken += 1;
            }
        }
    }
    ensure!(broken == 0, "{broken} broken links");
    Ok(())
}

/// Pages below `src` are part of rustdoc, which checks their links itself.
fn is_page(file: &str) -> bool {
    file.ends_with(".md") && !file.contains("/src/")
}

/// The targets of `[text](target)` outside of code, with their lines. Addresses on the network are left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in lines_of_prose(text) {
        // Every second part of a line is code between backquotes. A link's text may be code, its target is not.
        let targets = line.match_indices("](").filter(|(at, _)| !in_code(line, *at));
        for (at, _) in targets {
            let target = line[at + 2..].split([')', ' ']).next().unwrap_or_default();
            if !target.contains(':') && !target.is_empty() {
                links.push((number, target));
            }
        }
    }
    links
}

/// The lines outside of fenced code, numbered from 1.
fn lines_of_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn in_code(line: &str, at: usize) -> bool {
    line[..at].matches('`').count() % 2 == 1
}

fn leads_somewhere(root: &Path, page: &str, text: &str, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    if file.is_empty() {
        return has_heading(text, heading);
    }
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let Some(path) = inside(&folder.join(file)) else { return false };
    let path = root.join(path);
    match fs::read_to_string(&path) {
        Ok(text) if !heading.is_empty() && file.ends_with(".md") => has_heading(&text, heading),
        Ok(_) => true,
        Err(_) => path.exists(),
    }
}

/// `path` without `..`, or `None` when it leaves the repository.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if inside.pop() => {}
            Component::ParentDir => return None,
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => inside.push(part),
        }
    }
    Some(inside)
}

fn has_heading(text: &str, anchor: &str) -> bool {
    lines_of_prose(text)
        .filter_map(|(_, line)| line.strip_prefix('#'))
        .any(|heading| anchor_of(heading.trim_start_matches('#').trim()) == anchor)
}

/// The anchor that hosts of Markdown make of a heading: lower case, hyphens for spaces, no punctuation.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text =
            "see [a](a.md#x) and `[b](b.md)`\n```\n[c](c.md)\n```\n[d](https://d) [`e`](#e)\n";
        assert_eq!(links(text), [(1, "a.md#x"), (5, "#e")]);
    }

    #[test]
    fn a_heading_is_found_by_its_anchor() {
        let text = "# Proof\n## Power cuts, full and failing disks: `x_y`\n";
        assert!(has_heading(text, "power-cuts-full-and-failing-disks-x_y"));
        assert!(!has_heading(text, "power"));
    }

    #[test]
    fn a_path_that_leaves_the_repository_leads_nowhere() {
        assert_eq!(inside(Path::new("docs/adr/../A.md")), Some("docs/A.md".into()));
        assert_eq!(inside(Path::new("docs/../../A.md")), None);
    }
}
