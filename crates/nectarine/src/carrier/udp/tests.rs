use super::*;

#[test]
fn a_socket_bounds_the_windows_of_its_own_machine() {
    for (peer, most) in
        [("127.0.0.1:1", 100), ("[::1]:1", 100), ("[::ffff:127.0.0.1]:1", 100), ("10.0.0.1:1", u32::MAX)]
    {
        assert_eq!(socket_bound(peer.parse().unwrap(), 100), most, "{peer}");
    }
}
