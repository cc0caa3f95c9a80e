//! `crossdock keygen` and `crossdock keys`, and the keys of commands that connect to a daemon.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use crossdock_nectarine::PublicKey;

/// The keys of a secure session.
#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// File with this client's private key (`crossdock keygen`), for a daemon that accepts only secure sessions over the
    /// network; needs --daemon-key
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_KEY", value_hint = ValueHint::FilePath, requires = "daemon_key")]
    pub(crate) key: Option<PathBuf>,
    /// The daemon's public key, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", env = "CROSSDOCK_DAEMON_KEY", requires = "key")]
    pub(crate) daemon_key: Option<PublicKey>,
    /// Source route: the names of the nodes that packets take, from the daemon at --address (whose public key is --daemon-key) to
    /// the one to speak with, such as west,middle,east; needs --key and --route-key
    #[arg(long, value_name = "NODES", value_delimiter = ',', requires = "route_key", requires = "key")]
    pub(crate) route: Vec<String>,
    /// The public key of the route's last daemon
    #[arg(long, value_name = "KEY", requires = "route")]
    pub(crate) route_key: Option<PublicKey>,
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Make a token for the HTTP API instead
    #[arg(long)]
    pub(crate) token: bool,
    /// The file for the private key, or the token; there must be no such file [with --token: crossdock.token]
    #[arg(long, value_name = "FILE", default_value = "crossdock.key", value_hint = ValueHint::FilePath)]
    #[arg(default_value_if("token", "true", "crossdock.token"))]
    pub(crate) output: PathBuf,
}

/// `crossdock keys`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct KeysCommand {
    #[command(subcommand)]
    pub(crate) command: Option<KeysChange>,
    #[command(flatten)]
    pub(crate) list: KeysList,
}

#[derive(Debug, Args)]
pub(crate) struct KeysList {
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) file: KeysFile,
}

/// Where the authorised keys are.
#[derive(Debug, Args)]
pub(crate) struct KeysFile {
    /// File with the authorised keys [default: the configuration's `authorized_file`]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// The daemon's configuration
    #[arg(long, value_name = "FILE", env = "CROSSDOCK_CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysChange {
    /// Authorises a client by its public key
    #[command(after_help = "\
Examples:
  crossdock keys add 0b5f2c1d3e4a59687786a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0 desk --file clients.keys")]
    Add(AddKey),
    /// Withdraws the authorisation of a client, by its public key or its name
    #[command(
        visible_alias = "remove",
        after_help = "\
Examples:
  crossdock keys rm desk --file clients.keys"
    )]
    Rm(RemoveKey),
    /// Prints the public key of a file with a private key
    #[command(after_help = "\
Examples:
  crossdock keys show crossdock.key")]
    Show(ShowKey),
}

#[derive(Debug, Args)]
pub(crate) struct AddKey {
    /// The client's public key
    pub(crate) key: PublicKey,
    /// A name for it
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) file: KeysFile,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveKey {
    /// The client's public key, or its name
    pub(crate) client: String,
    #[command(flatten)]
    pub(crate) file: KeysFile,
}

#[derive(Debug, Args)]
pub(crate) struct ShowKey {
    /// The file with the private key
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}
