//! Reads a sorted list of subjects page by page, while other processes add to it and remove from it.
//!
//! Pages overlap. If a page does not overlap with the one before, subjects were removed before it, and others have
//! moved to earlier pages: they are read again.

/// The part of the list that was read so far.
#[derive(Debug)]
pub(crate) struct SubjectPages {
    /// The size of a page. A smaller page is the last one.
    size: usize,
    offset: usize,
    names: Vec<String>,
}

impl SubjectPages {
    pub(crate) const fn new(size: usize) -> Self {
        Self { size, offset: 0, names: Vec::new() }
    }

    /// Where the next page begins.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    /// Adds the page at [`SubjectPages::offset`]. True if it was the last one.
    pub(crate) fn add(&mut self, mut page: Vec<String>) -> bool {
        page.sort_unstable();
        if !self.overlaps(&page) {
            self.offset = self.offset.saturating_sub(self.size.div_ceil(2));
            return false;
        }
        let is_last = page.len() < self.size;
        self.offset += page.len().saturating_sub(self.size.div_ceil(100));
        let overlap = self.names.last().map_or(0, |last| page.partition_point(|name| name <= last));
        self.names.extend(page.drain(overlap..));
        is_last
    }

    fn overlaps(&self, page: &[String]) -> bool {
        self.offset == 0 || page.first().is_some_and(|first| Some(first) <= self.names.last())
    }

    /// All names, sorted.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list from which the first few names are removed after the first page.
    fn read(count: usize, removed: usize) -> Vec<String> {
        let all: Vec<String> = (0..count).map(|name| format!("{name:03}")).collect();
        let (mut list, mut pages) = (&all[..], SubjectPages::new(10));
        for _ in 0..100 {
            if pages.add(list.iter().skip(pages.offset()).take(10).cloned().collect()) {
                return pages.into_names();
            }
            list = &all[removed..];
        }
        panic!("the list does not end")
    }

    #[test]
    fn names_that_are_removed_during_the_read_hide_no_others() {
        for (count, removed) in
            [(0, 0), (9, 0), (10, 0), (95, 0), (95, 1), (95, 9), (95, 60), (95, 95)]
        {
            let names = read(count, removed);
            let missing = (removed..count).find(|name| !names.contains(&format!("{name:03}")));
            assert_eq!(missing, None, "{count} of which {removed} were removed: {names:?}");
            assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        }
    }
}
