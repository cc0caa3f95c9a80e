//! The steps of the tour: a text and a command for each step.

/// How a step's command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// It is the daemon, which runs in the tour's own process.
    Daemon,
    /// It goes on while the next steps run.
    Behind,
    /// It ends before the next step.
    ToItsEnd,
}

/// A step of the tour.
#[derive(Debug)]
pub(super) struct TourStep {
    /// The description, in a few sentences.
    pub(super) text: &'static str,
    /// The command, as it is typed into a shell.
    pub(super) command: &'static str,
    /// How it is run.
    pub(super) runs: Runs,
}

/// The file that the publisher reads.
pub(super) const FILE: &str = "flights.csv";

/// All steps.
pub(super) const STEPS: [TourStep; 8] = [
    TourStep {
        text: "The daemon is one program. It needs no configuration and no privileges, and it listens on this machine \
               only. The tour runs it in its own process, on a free port.",
        command: "crossdock serve &",
        runs: Runs::Daemon,
    },
    TourStep {
        text: "A publisher sends typed records to a stream; its first publisher creates the stream. This one sends the \
               flights that left New York in 2013 to the stream A, 2000 per second. The types come from the file. Its \
               own output is left out here.",
        command: "crossdock publish A flights.csv --rate 2k &",
        runs: Runs::Behind,
    },
    TourStep {
        text: "A subscriber states in SQL which records and which fields it wants. The daemon runs the query next to \
               the network, and sends only what passes. --wait=30s waits until the stream exists, 30 s at \
               most.",
        command: "crossdock subscribe --wait=30s --limit 5 \\\n    \
                  'SELECT carrier, flight, origin, dest FROM A WHERE dep_delay > 60'",
        runs: Runs::ToItsEnd,
    },
    TourStep {
        text: "A handler is a query that is deployed in the daemon. What it selects is a stream of its own. $minutes is \
               a parameter, which `crossdock handler set` changes. The daemon measures the cost of a handler first, and \
               refuses one for which no core has the time.",
        command: "crossdock handler deploy late --param minutes=60 \\\n    \
                  'SELECT carrier, flight, origin, dest FROM A WHERE dep_delay > $minutes'",
        runs: Runs::ToItsEnd,
    },
    TourStep {
        text: "Subscribers and further handlers read the stream of a handler like any other.",
        command: "crossdock subscribe --limit 5 'SELECT * FROM late'",
        runs: Runs::ToItsEnd,
    },
    TourStep {
        text: "A swap replaces the handler by its next version while records flow: no record is lost, duplicated or \
               reordered. The next version takes the flights from JFK only.",
        command: "crossdock handler swap late \\\n    \
                  \"SELECT carrier, flight, origin, dest FROM A\n     \
                  WHERE dep_delay > $minutes AND origin = 'JFK'\"",
        runs: Runs::ToItsEnd,
    },
    TourStep {
        text: "A subscriber that was there before would go on. This one is new, and gets the flights from JFK.",
        command: "crossdock subscribe --limit 5 'SELECT * FROM late'",
        runs: Runs::ToItsEnd,
    },
    TourStep {
        text: "`top` shows contexts, handlers and streams with their rates and losses, live until q is pressed. --once \
               prints one screen.",
        command: "crossdock top --once",
        runs: Runs::ToItsEnd,
    },
];

/// The words of a command, as a shell reads them: blanks separate words outside of quotes, and a backslash at the end of a line
/// joins the next line. A `&` at the end is left out.
pub(super) fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.replace("\\\n", " ").chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (' ' | '\n', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words.retain(|word| word != "&");
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn commands_fit_80_columns_and_are_right() {
        for TourStep { text, command, .. } in &STEPS {
            assert!(command.lines().all(|line| line.chars().count() <= 78), "{command}");
            assert!(text.ends_with('.') && !text.contains("  "), "{text}");
            let parsed = Cli::try_parse_from(words(command));
            assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
        }
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("a 'b c' \\\n    \"d 'e'\n f\"  g=1 &"), ["a", "b c", "d 'e'\n f", "g=1"]);
        assert_eq!(words("a ''"), ["a", ""]);
    }
}
