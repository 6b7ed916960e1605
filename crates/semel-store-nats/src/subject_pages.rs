//! A list that is asked for page by page, while others take from it and add to it.
//!
//! Pages overlap. If they do not, the list has become shorter before the page, and what moved there was skipped.

/// What is known of a list so far.
#[derive(Debug)]
pub(crate) struct Pages {
    /// A page of fewer is the last one.
    size: usize,
    offset: usize,
    names: Vec<String>,
}

impl Pages {
    pub(crate) const fn of(size: usize) -> Self {
        Self { size, offset: 0, names: Vec::new() }
    }

    /// Where the next page begins.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }

    /// Adds the page that begins there. True if it was the last one.
    pub(crate) fn add(&mut self, mut page: Vec<String>) -> bool {
        page.sort_unstable();
        if !self.joins(&page) {
            self.offset = self.offset.saturating_sub(self.size.div_ceil(2));
            return false;
        }
        let is_last = page.len() < self.size;
        self.offset += page.len().saturating_sub(self.size.div_ceil(100));
        let known = self.names.last().map_or(0, |last| page.partition_point(|name| name <= last));
        self.names.extend(page.drain(known..));
        is_last
    }

    fn joins(&self, page: &[String]) -> bool {
        self.offset == 0 || page.first().is_some_and(|first| Some(first) <= self.names.last())
    }

    /// All names, in their order.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a list of which the first few are taken after the first page.
    fn read(count: usize, taken: usize) -> Vec<String> {
        let all: Vec<String> = (0..count).map(|name| format!("{name:03}")).collect();
        let (mut list, mut pages) = (&all[..], Pages::of(10));
        for _ in 0..100 {
            if pages.add(list.iter().skip(pages.offset()).take(10).cloned().collect()) {
                return pages.into_names();
            }
            list = &all[taken..];
        }
        panic!("it does not end")
    }

    #[test]
    fn what_others_take_from_a_list_hides_nothing_else() {
        for (count, taken) in
            [(0, 0), (9, 0), (10, 0), (95, 0), (95, 1), (95, 9), (95, 60), (95, 95)]
        {
            let names = read(count, taken);
            let missing = (taken..count).find(|name| !names.contains(&format!("{name:03}")));
            assert_eq!(missing, None, "{count} of which {taken} were taken: {names:?}");
            assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        }
    }
}
