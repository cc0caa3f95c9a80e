//! How a query's names of streams and columns are matched.

use crate::place::{Sandbox, with_io_contexts};

/// A place whose daemon has a stream `Orders` with a column `Amount`.
fn place() -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = Sandbox::with_configured_daemon("");
    place.write("o.csv", "Amount\n1\n");
    place.run(["publish", "Orders", "o.csv"]).with_code(0);
    (place, daemon)
}

#[test]
fn streams_and_columns_are_found_by_one_rule() {
    let (place, _daemon) = place();
    let subscriber = place.spawn(["subscribe", "SELECT amount, orders.AMOUNT AS again FROM orders", "--limit", "1"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "Orders", "o.csv"]).with_code(0);
    assert_eq!(subscriber.end().with_code(0).stdout, "{\"Amount\":1,\"again\":1}\n");
    for sql in ["SELECT amount FROM ORDERS", "SELECT \"Amount\" FROM \"Orders\"", "SELECT o.amount FROM orders o"] {
        let plan = place.run(["explain", sql]).with_code(0).stdout;
        assert!(plan.starts_with("stream Orders in format"), "{plan}");
    }
    place.run(["handler", "deploy", "big", "SELECT amount FROM orders WHERE AMOUNT > 0"]).with_code(0);
    let handlers = place.list("handlers");
    assert_eq!(handlers[0]["reads"][0], "Orders", "{handlers:?}");
}

#[test]
fn commands_find_a_stream_as_queries_do() {
    let (place, _daemon) = place();
    place.write("o.schema", "Amount i64\n");
    let shown = place.run(["formats", "show", "orders:v1"]).with_code(0).stdout;
    assert!(shown.contains("Amount"), "{shown}");
    place.run(["formats", "show", "order:v1"]).with_code(2).saying(&["no format order:v1", "did you mean `Orders`?"]);
    place.run(["formats", "show", "orders:v7"]).with_code(2).saying(&["no format orders:v7", "`Orders` has v1 only"]);
    place.run(["formats", "check", "orders", "o.schema"]).with_code(0);
    place.run(["formats", "rm", "orders:v1"]).with_code(2).saying(&["v1 is the only version of stream `Orders`"]);
    let add = place.run(["conversions", "add", "ORDERS", "v1", "v9"]).with_code(2);
    add.saying(&["stream `Orders` has no format v9"]);
    place.run(["streams", "rm", "ORDERS"]).with_code(0);
    assert!(place.list("streams").iter().all(|stream| stream["name"] != "Orders"));
}

#[test]
fn a_new_name_that_differs_from_a_stream_in_case_only_is_refused() {
    let (place, _daemon) = place();
    for (arguments, code) in [
        (&["publish", "orders", "o.csv"][..], 1),
        (&["publish", "orders", "o.csv", "--transport", "udp"], 1),
        (&["formats", "policy", "orders", "backward"], 2),
        (&["handler", "deploy", "orders", "SELECT Amount FROM Orders"], 1),
        (&["handler", "deploy", "copy", "SELECT Amount FROM Orders", "--output-stream", "oRDERS"], 1),
    ] {
        let said = ["there is a stream `Orders`", "differs in case only", "use its name, or another one"];
        place.run(arguments).with_code(code).saying(&said);
    }
    let streams = place.list("streams");
    let names: Vec<&str> = streams.iter().filter_map(|stream| stream["name"].as_str()).collect();
    assert_eq!(names, ["A", "Orders"]);
    place.run(["formats", "policy", "Orders", "backward"]).with_code(0);
}

#[test]
fn a_configuration_cannot_declare_two_streams_that_differ_in_case_only() {
    let place = Sandbox::new();
    place.write("o.schema", "Amount i64\n");
    let stream = |name: &str| format!("[[stream]]\nname = \"{name}\"\nschema = \"o.schema\"\n");
    let config = format!("{}{}[context]\nlisten = \"127.0.0.1:0\"\n", stream("Orders"), stream("orders"));
    place.write("two.toml", with_io_contexts(&config));
    // The others are made, and the daemon serves.
    let daemon = place.spawn(["serve", "--config", "two.toml"]);
    daemon.stderr_line(|line| line.contains("there is a stream `Orders`") && line.contains("differs in case only"));
}

#[test]
fn a_name_in_quotes_is_answered_with_the_right_spelling() {
    let (place, _daemon) = place();
    for command in ["subscribe", "explain"] {
        place.run([command, "SELECT * FROM \"orders\""]).with_code(2).saying(&["no stream `orders`", "`Orders`"]);
        place
            .run([command, "SELECT \"amount\" FROM Orders"])
            .with_code(2)
            .saying(&["`amount`", "did you mean `Amount`"]);
    }
}
