//! Several servers on one etcd: to clients they are one.

mod balancer;
mod identity;
mod leading;
mod moving;
mod outage;
mod page;
mod plane;
mod reach;
mod rolling;
