//! How a write fails: the error numbers of Linux that the control files use.

/// Why a write was refused, as `write(2)` would say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Errno {
    /// The writer lacks CAP_NET_ADMIN.
    #[error("operation not permitted")]
    Eperm,
    /// No such control file.
    #[error("no such file or directory")]
    Enoent,
    /// A list is longer than its place.
    #[error("argument list too long")]
    E2big,
    /// A device of this name is there already.
    #[error("device or resource busy")]
    Ebusy,
    /// No such interface.
    #[error("no such device")]
    Enodev,
    /// No such command, or a value that it refuses.
    #[error("invalid argument")]
    Einval,
    /// Two settings that exclude each other.
    #[error("operation not supported")]
    Eopnotsupp,
    /// The interface is down.
    #[error("network is down")]
    Enetdown,
}

impl Errno {
    /// Every member, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Eperm,
        Self::Enoent,
        Self::E2big,
        Self::Ebusy,
        Self::Enodev,
        Self::Einval,
        Self::Eopnotsupp,
        Self::Enetdown,
    ];

    /// The number on Linux (asm-generic/errno-base.h, errno.h).
    pub const fn number(self) -> i32 {
        match self {
            Self::Eperm => 1,
            Self::Enoent => 2,
            Self::E2big => 7,
            Self::Ebusy => 16,
            Self::Enodev => 19,
            Self::Einval => 22,
            Self::Eopnotsupp => 95,
            Self::Enetdown => 100,
        }
    }

    /// The symbol, for example `EINVAL`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eperm => "EPERM",
            Self::Enoent => "ENOENT",
            Self::E2big => "E2BIG",
            Self::Ebusy => "EBUSY",
            Self::Enodev => "ENODEV",
            Self::Einval => "EINVAL",
            Self::Eopnotsupp => "EOPNOTSUPP",
            Self::Enetdown => "ENETDOWN",
        }
    }
}
