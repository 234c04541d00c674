//! Several servers on one etcd: to clients they are one.

mod balancer;
mod identity;
mod leader_election;
mod client_failover;
mod outage;
mod docs_page;
mod shared_etcd;
mod external_address;
mod rolling_restart;
