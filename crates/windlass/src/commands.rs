//! The commands, one file each.

mod bundle;
mod can_i;
mod connect;
mod controllers;
mod crds;
mod csr;
pub mod data_dir;
mod interrupted;
mod issue;
mod listening;
mod node;
mod print;
mod server;
mod shared;
mod signer;
mod store;
pub mod token;
mod trust;
mod up;
mod user;
mod version;

use anyhow::Result;

pub use interrupted::Interrupted;
pub use listening::cannot_listen;

use crate::cli::Command;

/// Runs a command to its end.
pub fn run(command: Command) -> Result<()> {
    // Before anything of rustls: libraries would otherwise choose for themselves.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match command {
        Command::Up(arguments) => up::run(arguments),
        Command::Server(arguments) => server::run(arguments),
        Command::Controllers(arguments) => controllers::run(*arguments),
        Command::Node(arguments) => node::run(*arguments),
        Command::Store(command) => store::run(command),
        Command::User(command) => user::run(command),
        Command::Issue(arguments) => issue::run(*arguments),
        Command::Csr(command) => csr::run(command),
        Command::Signer(command) => signer::run(command),
        Command::Trust(command) => trust::run(command),
        Command::Bundle(command) => bundle::run(command),
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Token(command) => token::run(command),
        Command::CanI(arguments) => can_i::run(arguments),
        Command::Version(arguments) => version::run(&arguments),
    }
}
