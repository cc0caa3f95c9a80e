//! Where the daemon's control API is, and what is sent to it and trusted there.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};

use crate::http::tls::CertificatePin;

/// The daemon's control socket, or its HTTP address.
#[derive(Debug, Args)]
pub(crate) struct Control {
    /// The daemon's control socket [default: crossdock.sock in $XDG_RUNTIME_DIR, else /tmp/crossdock-UID.sock; if that
    /// does not exist, the installed service's socket, /run/crossdock/control.sock]
    #[arg(long, value_name = "PATH", env = "CROSSDOCK_SOCKET", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Ask the daemon at this address (`http` under `[control]` of its configuration), instead of a socket: a loopback
    /// IP:PORT, or https://HOST:PORT
    #[arg(long, value_name = "ADDRESS", env = "CROSSDOCK_HTTP")]
    pub(crate) http: Option<HttpAddress>,
    /// File with the token for --http (`token_file` under `[control]` or `[[access]]` of the daemon's configuration)
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_TOKEN_FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificates (PEM) of the authorities that may have signed the daemon's, for https://
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CA", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// SHA-256 of the daemon's certificate, for https://; goes before --ca
    #[arg(long, value_name = "SHA256", env = "CROSSDOCK_PIN")]
    pub(crate) pin: Option<CertificatePin>,
}

/// The address of a daemon's HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpAddress {
    /// Whether it uses TLS.
    pub(crate) is_tls: bool,
    /// A name, or an IP address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HttpAddress { host, port, .. } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl FromStr for HttpAddress {
    type Err = String;

    /// Reads `https://HOST:PORT`, `http://HOST:PORT`, or `IP:PORT` of this machine: what is sent beyond it is not to be
    /// unencrypted by mistake.
    fn from_str(text: &str) -> Result<HttpAddress, String> {
        let wrong = || {
            "give https://HOST:PORT, or for this machine a loopback address with a port, such as 127.0.0.1:7441"
                .to_owned()
        };
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest.strip_suffix('/').unwrap_or(rest)),
            None => (None, text),
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let ip = host.parse::<IpAddr>().ok();
        let is_name =
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        let is_tls = match scheme {
            Some("https") => true,
            Some("http") => false,
            None if ip.is_some_and(|ip| ip.is_loopback()) => false,
            _ => return Err(wrong()),
        };
        match bare.is_some() == ip.is_some_and(|ip| ip.is_ipv6()) && (ip.is_some() || is_name) {
            true => Ok(HttpAddress { is_tls, host: host.to_owned(), port }),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_loopbacks_own_or_says_its_scheme() {
        for (text, is_tls, host, port) in [
            ("127.0.0.1:7441", false, "127.0.0.1", 7441),
            ("[::1]:1", false, "::1", 1),
            ("http://10.0.0.1:7441/", false, "10.0.0.1", 7441),
            ("https://daemon.example:443", true, "daemon.example", 443),
            ("https://[fd00::1]:443/", true, "fd00::1", 443),
        ] {
            let address: HttpAddress = text.parse().unwrap();
            assert_eq!(address, HttpAddress { is_tls, host: host.to_owned(), port }, "{text}");
            assert!(text.contains(&address.to_string()), "{address}");
        }
        for text in [
            "10.0.0.1:7441",
            "localhost:7441",
            "https://daemon",
            "https://:1",
            "https://a/b:1",
            "ftp://127.0.0.1:1",
            "::1:7",
            "https://fd00::1:443",
            "https://[10.0.0.1]:443",
            "127.0.0.1",
            "127.0.0.1:99999",
            "https://a@b:1",
        ] {
            assert!(text.parse::<HttpAddress>().is_err_and(|why| why.contains("loopback")), "{text}");
        }
    }
}
