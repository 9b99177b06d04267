// Package mutate derives small wrong changes, mutants, from the syntax tree of a package, and writes all of them
// into one program in which a number chooses one (mutant schemata). It is pure: it reads syntax trees and writes
// source.
//
// Every change is made by insertions alone: a piece of source is wrapped in a call, or in a condition, that does
// nothing unless its mutant is the chosen one. So changes nest, and with number 0 the program is the original.
package mutate
