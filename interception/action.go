// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// Action is what a rule does with the packets it matches. It is sealed: the actions of this package are all there are, and
// a switch over them can be complete. Which tables an action may stand in is part of its type ([RawAction], [MangleAction],
// [NATAction], [FilterAction]), so that DROP in a nat table does not compile.
type Action interface {
	fmt.Stringer
	action()
}

// RawAction is an action that a raw table takes.
type RawAction interface {
	Action
	raw()
}

// MangleAction is an action that a mangle table takes.
type MangleAction interface {
	Action
	mangle()
}

// NATAction is an action that a nat table takes.
type NATAction interface {
	Action
	nat()
}

// FilterAction is an action that a filter table takes.
type FilterAction interface {
	Action
	filter()
}

// Accept ends the walk through this hook and table; the packet goes on to the next table.
type Accept struct{}

// Return ends the walk through this chain and goes on behind the jump that led here: in a chain that a hook leads to, with the
// hook's next entry.
type Return struct{}

// Drop discards the packet silently. It has no place in nat tables: iptables refuses it there, as only the first packet of a
// connection comes by.
type Drop struct{}

// RedirectTo sends the connection to a port of the namespace itself: to the address of the interface it came by or, in
// Output, to the loopback address. The original destination stays with the connection (SO_ORIGINAL_DST). It applies to TCP
// and UDP only and in the hooks Prerouting and Output only (iptables-extensions(8), REDIRECT).
type RedirectTo struct {
	// Port is the local port; it must not be 0.
	Port Port
}

// Jump continues in another chain of the same table, and behind the rule when that chain returns. It is made by
// [ChainRef.Call], which keeps it within its table.
type Jump struct {
	// Chain is the chain to continue in.
	Chain ChainName
}

// String is "accept".
func (Accept) String() string { return "accept" }

// String is "return".
func (Return) String() string { return "return" }

// String is "drop".
func (Drop) String() string { return "drop" }

// String is "redirect to :15001" with the port's number.
func (a RedirectTo) String() string { return fmt.Sprintf("redirect to :%d", a.Port) }

// String is "jump output" with the chain's name.
func (a Jump) String() string { return "jump " + string(a.Chain) }

func (Accept) action()     {}
func (Return) action()     {}
func (Drop) action()       {}
func (RedirectTo) action() {}
func (Jump) action()       {}

func (Accept) raw() {}
func (Return) raw() {}
func (Drop) raw()   {}
func (Jump) raw()   {}

func (Accept) mangle() {}
func (Return) mangle() {}
func (Drop) mangle()   {}
func (Jump) mangle()   {}

func (Accept) nat()     {}
func (Return) nat()     {}
func (RedirectTo) nat() {}
func (Jump) nat()       {}

func (Accept) filter() {}
func (Return) filter() {}
func (Drop) filter()   {}
func (Jump) filter()   {}
