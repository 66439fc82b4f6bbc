// ---------------------------------------------------------------------------------------------
// Objects that Python calls: the op of a launch returns the function for the device

thread_local FfiFunction exported = nullptr;
