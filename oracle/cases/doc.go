// Package cases makes up scenarios about impersonation: what nobody thought of writing down. First every two
// levels of every two factors are brought together in some case (names that nearly parse, grants of every shape,
// headers, kinds of request, histories), then cases are random.
//
// A case is an ordinary scenario without expectations: who knows the server it is for fills them in. The same seed
// gives the same cases. The package also makes a scenario smaller while something stays true of it, and prints it
// as a file.
package cases
