//! The reference tables of the configuration, read as the daemon reads them when it starts.

use super::finding::{Finding, size};
use super::machine::{Machine, TableRead};

/// The findings: one a table.
pub(super) fn findings(machine: &Machine) -> Vec<Finding> {
    machine.tables.iter().map(finding).collect()
}

fn finding(TableRead { name, path, read }: &TableRead) -> Finding {
    let wanted = format!("{name}: {}", path.display());
    match read {
        Ok((rows, bytes)) => Finding::ok("table", format_args!("{rows} rows, {}", size(*bytes)), wanted),
        Err(why) => Finding::ok("table", "refused", wanted)
            .problem(format_args!("table `{name}`: {why}: the daemon does not start without it")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::tests::machine;
    use super::*;

    #[test]
    fn a_table_that_cannot_be_read_is_a_problem_with_its_place() {
        let table = |name: &str, read| TableRead { name: name.to_owned(), path: "data/a.csv".into(), read };
        let (rows, wrong) = (Ok((4, 2048)), Err("data/a.csv: line 3: one column is missing".to_owned()));
        let findings =
            findings(&Machine { tables: vec![table("airports", rows), table("carriers", wrong)], ..machine() });
        let [good, bad] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((good.verdict, &*good.found, &*good.wanted), (Verdict::Ok, "4 rows, 2 KiB", "airports: data/a.csv"));
        assert_eq!((bad.verdict, &*bad.found), (Verdict::Problem, "refused"));
        assert!(bad.why.starts_with("table `carriers`: data/a.csv: line 3: "), "{bad:?}");
    }
}
