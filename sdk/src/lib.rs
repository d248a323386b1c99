//! What a driver author sees: the Driver trait, run(), errors, class and secret access
