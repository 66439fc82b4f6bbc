// ---------------------------------------------------------------------------------------------
// Objects with functions of plain C

// What a function says of its failure; never null.
const char* error_of(const char* text) { return text == nullptr ? "it gave no reason" : text; }
