//! Cookies: whoever returns one receives at the address that it was sent to. A cookie is a keyed hash of the address, the client's
//! index and the period, so nothing is stored for it.

use super::envelope::COOKIE_BYTES;
use core::net::{IpAddr, SocketAddr};
use ring::hmac;

/// How long one period lasts, in ns. A cookie holds in its own period and the next.
pub(super) const PERIOD_NS: u64 = 30_000_000_000;

/// The maker of cookies.
pub(super) struct Cookies {
    secret: hmac::Key,
}

impl Cookies {
    /// All that share the secret take one another's cookies.
    pub(super) fn new(secret: &[u8; 32]) -> Cookies {
        Cookies { secret: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    /// The cookie for a client's index and address.
    pub(super) fn make(&self, index: u32, addr: SocketAddr, now_ns: u64) -> [u8; COOKIE_BYTES] {
        self.of_period(index, addr, now_ns / PERIOD_NS)
    }

    /// Whether it is the cookie for this index and address, of this period or the last.
    pub(super) fn accepts(&self, cookie: &[u8; COOKIE_BYTES], index: u32, addr: SocketAddr, now_ns: u64) -> bool {
        let period = now_ns / PERIOD_NS;
        let is_of = |period| is_equal(&self.of_period(index, addr, period), cookie);
        is_of(period) || period.checked_sub(1).is_some_and(is_of)
    }

    /// The period's own secret is a part of what is hashed: so it changes with the period.
    fn of_period(&self, index: u32, addr: SocketAddr, period: u64) -> [u8; COOKIE_BYTES] {
        let mut text = [0; 31];
        let ip = match addr.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        text[..16].copy_from_slice(&ip.octets());
        text[16..18].copy_from_slice(&addr.port().to_le_bytes());
        text[18..22].copy_from_slice(&index.to_le_bytes());
        text[22..30].copy_from_slice(&period.to_le_bytes());
        let tag = hmac::sign(&self.secret, &text);
        let mut cookie = [0; COOKIE_BYTES];
        cookie.copy_from_slice(&tag.as_ref()[..COOKIE_BYTES]);
        cookie
    }
}

/// Whether two cookies are equal, in a time that does not depend on where they differ.
fn is_equal(one: &[u8; COOKIE_BYTES], other: &[u8; COOKIE_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_for_its_address_and_index_in_two_periods() {
        let cookies = Cookies::new(&[3; 32]);
        let (here, now_ns) = (SocketAddr::from(([192, 0, 2, 1], 9)), 7 * PERIOD_NS + 5);
        let cookie = cookies.make(1, here, now_ns);
        assert!(cookies.accepts(&cookie, 1, here, now_ns));
        assert!(cookies.accepts(&cookie, 1, here, now_ns + PERIOD_NS));
        assert!(!cookies.accepts(&cookie, 1, here, now_ns + 2 * PERIOD_NS), "expired");
        assert!(!cookies.accepts(&cookie, 1, here, now_ns - PERIOD_NS), "of a later time");
        assert!(!cookies.accepts(&cookie, 2, here, now_ns), "another handshake");
        for (ip, port) in [([192, 0, 2, 1], 10), ([192, 0, 2, 2], 9)] {
            assert!(!cookies.accepts(&cookie, 1, SocketAddr::from((ip, port)), now_ns), "another address");
        }
        assert!(!Cookies::new(&[4; 32]).accepts(&cookie, 1, here, now_ns), "of another daemon");
        assert!(!cookies.accepts(&[0; COOKIE_BYTES], 1, here, now_ns));
        let mapped = SocketAddr::from(([0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201], 9));
        assert!(cookies.accepts(&cookie, 1, mapped, now_ns), "the same address in a socket of both families");
    }
}
