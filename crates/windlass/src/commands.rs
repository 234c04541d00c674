//! Implementations of the commands, one module each.

mod api_client;
mod bundle;
mod can_i;
mod cert;
mod controllers;
mod crds;
mod csr;
pub mod data_dir;
mod interrupt;
mod issue;
mod listen_error;
mod node;
mod print;
mod rotate;
mod server;
mod shared_store;
mod signer;
mod store;
mod terminal;
pub mod token;
mod trust;
mod up;
mod user;
mod version;

use anyhow::Result;

pub use interrupt::InterruptedError;
pub use listen_error::cannot_listen;

use crate::cli::CliCommand;

pub fn run(command: CliCommand) -> Result<()> {
    // Must precede any use of rustls: libraries would otherwise select their own provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match command {
        CliCommand::Up(arguments) => up::run(*arguments),
        CliCommand::Server(arguments) => server::run(*arguments),
        CliCommand::Controllers(arguments) => controllers::run(*arguments),
        CliCommand::Node(arguments) => node::run(*arguments),
        CliCommand::Store(command) => store::run(command),
        CliCommand::User(command) => user::run(command),
        CliCommand::Issue(arguments) => issue::run(*arguments),
        CliCommand::Csr(command) => csr::run(command),
        CliCommand::Cert(command) => cert::run(command),
        CliCommand::Signer(command) => signer::run(command),
        CliCommand::Rotate(command) => rotate::run(command),
        CliCommand::Trust(command) => trust::run(command),
        CliCommand::Bundle(command) => bundle::run(command),
        CliCommand::Crds(arguments) => crds::run(&arguments),
        CliCommand::Token(command) => token::run(command),
        CliCommand::CanI(arguments) => can_i::run(arguments),
        CliCommand::Version(arguments) => version::run(&arguments),
    }
}
