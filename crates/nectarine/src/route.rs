//! Source routes: a session with a daemon that only other daemons reach.

use crate::error::Error;
use crossdock_transport::route::{NodeId, RouteRefusal, SourceRoute};
use crossdock_transport::secure::PublicKey;
use std::sync::Arc;

/// The nodes that the packets of a session take, from the daemon at the given address to the one that the session is with. The packets
/// are sealed for that one, and for each hop; the daemons between pass them on and see nothing of their content.
///
/// # Examples
/// ```no_run
/// use crossdock_nectarine::{NodeRoute, PrivateKey, PublicKey, Subscriber};
///
/// # fn open(own: PrivateKey, of_west: PublicKey, of_east: PublicKey) -> Result<(), crossdock_nectarine::Error> {
/// let route = NodeRoute::new(["west", "middle", "east"], of_east)?;
/// let subscriber = Subscriber::builder("west:7440").keys(own, of_west).route(route).sql("SELECT * FROM A").connect()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NodeRoute {
    nodes: Arc<[String]>,
    pub(crate) source: SourceRoute,
    /// The key of the last node's daemon.
    pub(crate) destination: PublicKey,
}

impl NodeRoute {
    /// The route over nodes of these names, from the first to the last, whose daemon has this public key.
    ///
    /// # Errors
    /// There are fewer than two or more than eight, or one is there twice.
    pub fn new<N: Into<String>>(
        nodes: impl IntoIterator<Item = N>,
        destination: PublicKey,
    ) -> Result<NodeRoute, Error> {
        let nodes: Arc<[String]> = nodes.into_iter().map(Into::into).collect();
        let ids: Vec<NodeId> = nodes.iter().map(|name| NodeId::of_name(name)).collect();
        let source = SourceRoute::new(&ids).map_err(|why| Error::Route(format!("`{}`: {why}", nodes.join(","))))?;
        Ok(NodeRoute { nodes, source, destination })
    }

    fn node(&self, place: usize) -> &str {
        self.nodes.get(place).map_or("", String::as_str)
    }

    /// The refusal of the node at a place, in words.
    pub(crate) fn refusal(&self, why: RouteRefusal, place: u8) -> String {
        let place = usize::from(place);
        let (node, next) = (self.node(place), self.node(place + 1));
        let before = match place.checked_sub(1) {
            Some(before) => format!("node `{}`", self.node(before)),
            None => "this client".to_owned(),
        };
        match why {
            RouteRefusal::Loop => format!("node `{node}` refuses the route, which is a loop"),
            RouteRefusal::UnknownHop => format!(
                "node `{node}` has no neighbour `{next}` (`route = true` in a [[node.peer]] section of its configuration)"
            ),
            RouteRefusal::Forbidden => format!(
                "node `{node}` does not let {before} send to `{next}` (`route = [\"{next}\"]` in an [[access]] section of its \
                 configuration)"
            ),
            RouteRefusal::Misplaced => {
                format!(
                    "the daemon in place {} of the route is not node `{node}`, or {before} is no neighbour of it",
                    place + 1
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_is_none_is_refused_in_words() {
        let key = PublicKey::from_bytes([1; 32]);
        let why = |nodes: &[&str]| NodeRoute::new(nodes.iter().copied(), key).unwrap_err().to_string();
        assert!(why(&["a"]).contains("2 to 8 nodes") && why(&["a"; 9]).contains("has 9"));
        assert!(why(&["a", "b", "a"]).contains("`a,b,a`: the route is a loop: node 3"));
    }

    #[test]
    fn a_refusal_names_the_node_and_the_setting() {
        let route = NodeRoute::new(["a", "b", "c"], PublicKey::from_bytes([1; 32])).unwrap();
        for (why, place, words) in [
            (RouteRefusal::Loop, 0, "node `a` refuses"),
            (RouteRefusal::UnknownHop, 1, "`b` has no neighbour `c`"),
            (RouteRefusal::Forbidden, 0, "`a` does not let this client send to `b` (`route = [\"b\"]`"),
            (RouteRefusal::Forbidden, 1, "`b` does not let node `a` send to `c`"),
            (RouteRefusal::Misplaced, 2, "place 3 of the route is not node `c`, or node `b` is no neighbour"),
        ] {
            assert!(route.refusal(why, place).contains(words), "{}", route.refusal(why, place));
        }
    }
}
