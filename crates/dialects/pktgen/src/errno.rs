//! Linux error numbers of writes to the control files.

/// Error of a write, as `write(2)` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Errno {
    /// The writer lacks CAP_NET_ADMIN.
    #[error("operation not permitted")]
    Eperm,
    /// No such control file.
    #[error("no such file or directory")]
    Enoent,
    /// The list exceeds the available space.
    #[error("argument list too long")]
    E2big,
    /// A device with this name exists.
    #[error("device or resource busy")]
    Ebusy,
    /// No such interface.
    #[error("no such device")]
    Enodev,
    /// Unknown command, or invalid value.
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
    /// All errors, by number.
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

    /// Error number on Linux (asm-generic/errno-base.h, errno.h).
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

    /// Symbol of the error, for example `EINVAL`.
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
