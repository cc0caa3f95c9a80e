//! Networks that are trusted: an address and the bits that its addresses have in common.

use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network, as `10.0.0.0/8`; an address without bits is a network of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// The networks that are trusted where nothing else is said: those of the loopback interface.
    #[must_use]
    pub fn loopback() -> Vec<Network> {
        let v4 = Network { address: Ipv4Addr::new(127, 0, 0, 0).into(), bits: 8 };
        vec![v4, Network { address: Ipv6Addr::LOCALHOST.into(), bits: 128 }]
    }

    /// Whether an address is in it; an IPv4 address also in its form for IPv6 sockets.
    #[inline]
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Whether it has only addresses of the loopback interface.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let least = if self.address.is_ipv4() { 8 } else { 128 };
        self.address.is_loopback() && self.bits >= least
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("`{text}` is no network: write it as 10.0.0.0/8 or fd00::/8");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > most {
            return Err(wrong());
        }
        if let IpAddr::V6(mapped) = address
            && let Some(v4) = mapped.to_ipv4_mapped()
        {
            return Err(format!("`{text}` is a network of IPv4 written as one of IPv6: write it as {v4}/…"));
        }
        let first = match address {
            IpAddr::V4(own) => {
                let host = u32::MAX.checked_shr(bits.into()).unwrap_or(0);
                IpAddr::from(Ipv4Addr::from_bits(own.to_bits() & !host))
            }
            IpAddr::V6(own) => {
                let host = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
                IpAddr::from(Ipv6Addr::from_bits(own.to_bits() & !host))
            }
        };
        if first != address {
            return Err(format!("`{text}` has bits behind its first {bits}: is {first}/{bits} meant?"));
        }
        Ok(Network { address, bits })
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Network, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_whose_first_bits_are_its_own() {
        for (network, address, is_in) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("192.168.4.7", "192.168.4.7", true),
            ("192.168.4.7", "192.168.4.6", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "2001:db8::1", true),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), is_in, "{address} in {network}");
        }
        for wrong in ["", "10.0.0.0/33", "::1/129", "10.0.0/8", "10.0.0.0/", "here"] {
            assert!(wrong.parse::<Network>().unwrap_err().contains("is no network"), "{wrong}");
        }
        for (stray, meant) in [("10.0.0.1/8", "10.0.0.0/8"), ("fd00::1/64", "fd00::/64"), ("1.0.0.0/0", "0.0.0.0/0")] {
            let why = stray.parse::<Network>().unwrap_err();
            assert!(why.contains(meant), "{why}");
        }
        for mapped in ["::ffff:10.0.0.0/104", "::ffff:10.0.0.1"] {
            let why = mapped.parse::<Network>().unwrap_err();
            assert!(why.contains("IPv4"), "{why}");
        }
        let loopback = Network::loopback();
        assert!(loopback.iter().all(Network::is_loopback));
        assert!(loopback.iter().any(|network| network.contains(IpAddr::from([127, 9, 9, 9]))));
        assert!(!"126.0.0.0/7".parse::<Network>().unwrap().is_loopback());
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
    }
}
