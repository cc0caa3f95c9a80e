//! How a query's names of streams and columns are matched.

use crate::place::Place;

/// A place whose daemon has the streams `Orders`, `Twice` and `TWICE`, each with a column `Amount`.
fn place() -> (Place, crate::place::Daemon) {
    let (place, daemon) = Place::with_configured_daemon("");
    place.write("o.csv", "Amount\n1\n");
    for stream in ["Orders", "Twice", "TWICE"] {
        place.run(["publish", stream, "o.csv"]).with_code(0);
    }
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
fn a_name_in_quotes_and_one_that_may_be_two_are_answered_with_the_right_spelling() {
    let (place, _daemon) = place();
    for command in ["subscribe", "explain"] {
        place.run([command, "SELECT * FROM \"orders\""]).with_code(2).saying(&["no stream `orders`", "`Orders`"]);
        place
            .run([command, "SELECT \"amount\" FROM Orders"])
            .with_code(2)
            .saying(&["`amount`", "did you mean `Amount`"]);
        let said = ["stream `twice` may be `T", "` or `T", "in double quotes"];
        place.run([command, "SELECT * FROM twice"]).with_code(2).saying(&said);
    }
    let plan = place.run(["explain", "SELECT * FROM TWICE"]).with_code(0).stdout;
    assert!(plan.starts_with("stream TWICE in"), "{plan}");
    let deploy = ["handler", "deploy", "x", "SELECT * FROM twice"];
    place.run(deploy).with_code(1).saying(&["may be `T", "in double quotes"]);
}
