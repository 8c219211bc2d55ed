//! Command line options and the plan that they describe. Each option is declared once, here; help, completion, man
//! page and errors are derived from the declaration.

mod count;
mod given;
#[cfg(any(feature = "web", feature = "fleet"))]
mod grants;
mod output;
mod ports;
mod printing;
mod refused;
mod socket;
mod stream;

pub(crate) use count::count_in;
pub(crate) use given::{Given, ids};
#[cfg(any(feature = "web", feature = "fleet"))]
pub(crate) use grants::grants;
pub(crate) use output::{OutputArgs, UnsentArgs};
pub(crate) use ports::{Outage, ReceiveArgs, TrafficArgs, TransmitArgs, any_port, cpu_list, take};
pub(crate) use printing::PrintArgs;
pub(crate) use refused::{Refused, Row, Table};
pub(crate) use socket::{Pair, SocketArgs};
pub(crate) use stream::{Frames, StreamArgs};
