//! Several servers on one etcd: clients see them as one.

mod balancer;
mod client_failover;
mod docs_page;
mod external_address;
mod identity;
mod leader_election;
mod ledger_records;
mod outage;
mod revocation;
mod rolling_restart;
mod shared_etcd;
