//! Links in Markdown pages to files that are not there.

use std::path::Path;

use pulldown_cmark::{Event, Parser, Tag};

use super::Finding;
use super::tree::{Text, Tree};

/// Every link of every page.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.pages.iter().flat_map(|page| broken(&tree.root, page)).collect())
}

fn broken(root: &Path, page: &Text) -> Vec<Finding> {
    let folder = root.join(&page.path).parent().unwrap_or(root).to_owned();
    let mut findings = Vec::new();
    for (event, range) in Parser::new(&page.text).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url: target, .. } | Tag::Image { dest_url: target, .. }) = event else {
            continue;
        };
        let file = target.split(['#', '?']).next().unwrap_or_default();
        // `scheme:` is somebody else's page; an empty one is a heading of this page.
        if file.is_empty() || file.contains(':') {
            continue;
        }
        let path = file.strip_prefix('/').map_or_else(|| folder.join(file), |from_root| root.join(from_root));
        if !path.exists() {
            let line = page.text[..range.start].lines().count() + usize::from(page.text[..range.start].ends_with('\n'));
            let remedy = "name a file that is there, or take the link out";
            findings.push(Finding::new(&page.path, line.max(1), format!("the link to {file} leads nowhere"), remedy));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_are_found_with_their_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "# A\n\nSee [this](Cargo.toml), [that](src/main.rs#L1), [it](#a), [web](https://example.org/x).\n\n\
            ```\n[code](nowhere.md)\n```\n\n[gone](nowhere.md) and\n![a picture][ref]\n\n[ref]: /gone.png\n";
        let page = Text { path: "PAGE.md".into(), text: text.into() };
        let found: Vec<_> = broken(root, &page).into_iter().map(|finding| (finding.line, finding.what)).collect();
        assert_eq!(
            found,
            [
                (9, "the link to nowhere.md leads nowhere".to_owned()),
                (10, "the link to /gone.png leads nowhere".to_owned()),
            ]
        );
    }
}
