//! Suggestions for misspelled words.

/// Returns the words of `known` that `word` may mean, best first: at an edit distance of at most one letter plus a
/// quarter of the shorter word, regardless of case.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let length = word.chars().count();
    let mut ranked: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|other| {
            let others = other.chars().count();
            let limit = 1 + length.min(others) / 4;
            // The difference in length is a lower bound of the distance. This check makes long words cheap.
            if length.abs_diff(others) > limit {
                return None;
            }
            let distance = edits(word, other);
            (distance <= limit).then_some((distance, other))
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, other)| other).collect()
}

/// Returns the edit distance in letters to add, drop or change (Levenshtein), regardless of case.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance() {
        assert_eq!(edits("eth0", "eth0"), 0);
        assert_eq!(edits("eth0", "ETH1"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
    }

    #[test]
    fn only_what_is_near() {
        let known = ["lo", "eth0", "eth1", "wlan0"];
        assert_eq!(nearest("eht0", known), ["eth0"]);
        assert_eq!(nearest("eth2", known), ["eth0", "eth1"]);
        assert!(nearest("ens1f0", known).is_empty());
        assert!(nearest(&"x".repeat(1000), known).is_empty());
    }
}
