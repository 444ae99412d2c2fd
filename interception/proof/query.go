// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Direction is the direction of packets.
type Direction uint8

// The directions.
const (
	// BothWays is either direction.
	BothWays Direction = iota
	// Out: a socket of the namespace sends them, possibly to the namespace itself.
	Out
	// In: they come by a link.
	In
)

// String returns "in", "out" or "in+out".
func (d Direction) String() string {
	switch d {
	case Out:
		return "out"
	case In:
		return "in"
	case BothWays:
	}
	return "in+out"
}

// Query narrows an explanation to some packets. The zero value means all that open a connection or
// exchange.
type Query struct {
	// Direction is their direction.
	Direction Direction
	// Family is theirs.
	Family interception.Family
	// L4 is their protocol, ports and flags.
	L4 interception.L4
	// Ports are destination ports, whatever the protocol.
	Ports interception.Condition[interception.PortSet]
	// Src and Dst are their addresses. Only packets that name a source meet Src.
	Src, Dst interception.Condition[interception.PrefixSet]
	// UID and GID are those of the sending socket; packets that come in by a link meet neither.
	UID interception.Condition[interception.UIDSet]
	GID interception.Condition[interception.GIDSet]
	// Link is the incoming link; packets of a socket do not meet it. It must be one of the world's,
	// other than lo.
	Link interception.Interface
	// All adds packets that open no connection, and those of known flows.
	All bool
}

// ParseQuery parses text such as "tcp port 8443 in" or "out to 10.0.0.0/8 uid 1000": in any order,
// the words "in", "out", "tcp", "udp", "v4", "v6" and "all" (for Query.All), and the pairs "port
// N", "from PREFIX", "to PREFIX", "uid N", "gid N", "link NAME". PREFIX may be an address; N is a
// number, a range ("80-90") or a list of both ("80-90,443"). The empty text is the zero Query. The
// error is [ErrQuery], and quotes the word. Two words that answer one question, as in "tcp udp" or
// "port 80 port 81", are an error, which quotes both.
func ParseQuery(text string) (Query, error) {
	var q Query
	words := strings.Fields(text)
	said := map[string]string{}
	for len(words) > 0 {
		if q.word(words[0]) {
			if err := sayOnce(said, wordQuestion(words[0]), words[0]); err != nil {
				return Query{}, err
			}
			words = words[1:]
			continue
		}
		if len(words) < 2 {
			return Query{}, fmt.Errorf("%w: %q: write in, out, tcp, udp, v4, v6, all, or one of port, from, to, uid, gid, link and a value",
				ErrQuery, words[0])
		}
		if err := q.pair(words[0], words[1]); err != nil {
			return Query{}, fmt.Errorf("%w: %q: %w", ErrQuery, words[0]+" "+words[1], err)
		}
		if err := sayOnce(said, words[0], words[0]+" "+words[1]); err != nil {
			return Query{}, err
		}
		words = words[2:]
	}
	return q, nil
}

// wordQuestion returns what a word without a value is an answer to.
func wordQuestion(word string) string {
	switch word {
	case "in", "out":
		return "direction"
	case "tcp", "udp":
		return "protocol"
	case "v4", "v6":
		return "family"
	default:
		return word
	}
}

// sayOnce notes the answer to a question. It refuses a second one, which would replace the first.
func sayOnce(said map[string]string, question, answer string) error {
	if before, again := said[question]; again {
		return fmt.Errorf("%w: %q and %q: write one of them", ErrQuery, before, answer)
	}
	said[question] = answer
	return nil
}

// word parses a word without a value.
func (q *Query) word(word string) bool {
	switch word {
	case "in":
		q.Direction = In
	case "out":
		q.Direction = Out
	case "tcp":
		q.L4 = interception.TCP()
	case "udp":
		q.L4 = interception.UDP()
	case "v4":
		q.Family = interception.IPv4
	case "v6":
		q.Family = interception.IPv6
	case "all":
		q.All = true
	default:
		return false
	}
	return true
}

// pair parses a word with its value.
func (q *Query) pair(word, value string) error {
	switch word {
	case "port", "uid", "gid":
		return q.numbers(word, value)
	case "from", "to":
		prefix, err := parsePrefix(value)
		if err != nil {
			return err
		}
		condition := interception.Is(interception.Prefixes(prefix))
		if word == "from" {
			q.Src = condition
		} else {
			q.Dst = condition
		}
		return nil
	case "link":
		q.Link = interception.Interface(value)
		return q.Link.Validate()
	default:
		return fmt.Errorf("%q is not a word of a query: write in, out, tcp, udp, v4, v6, all, port, from, to, uid, gid or link", word)
	}
}

func (q *Query) numbers(word, value string) (err error) {
	var empty bool
	switch word {
	case "port":
		var ports interception.PortSet
		ports, err = interception.ParsePortSet(value)
		q.Ports, empty = interception.Is(ports), ports.IsEmpty()
	case "uid":
		var uids interception.UIDSet
		uids, err = interception.ParseUIDSet(value)
		q.UID, empty = interception.Is(uids), uids.IsEmpty()
	case "gid":
		var gids interception.GIDSet
		gids, err = interception.ParseGIDSet(value)
		q.GID, empty = interception.Is(gids), gids.IsEmpty()
	}
	if err == nil && empty {
		err = fmt.Errorf("no %s is named: write a number, such as 8080", word)
	}
	return err
}

func parsePrefix(value string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(value); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone: leave it out", value)
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a prefix such as 10.0.0.0/8", value)
	}
	return prefix.Masked(), nil
}

// checkLink refuses a link by which nothing arrives, as trace does: no packet would be as the query
// asks.
func (e *engine) checkLink(name interception.Interface) error {
	var names []string
	for _, l := range e.net.Links {
		if l.Name == name && name != trace.Loopback().Name || name == "" {
			return nil
		}
		if l.Name != trace.Loopback().Name {
			names = append(names, string(l.Name))
		}
	}
	return fmt.Errorf("%w: nothing arrives by link %q: name another link of the namespace than lo (%s)", ErrQuery, name, strings.Join(names, ", "))
}

// asks returns the packets of the query.
func (e *engine) asks(q Query) ref {
	start := state{src: own(ownSrc), dst: own(ownDst), owner: hasOwner, mark: mark{own: ^interception.Mark(0)}}
	asked := rule{Rule: interception.Rule{Match: interception.Match{
		Family: q.Family, L4: q.L4, Src: q.Src, Dst: q.Dst, UID: q.UID, GID: q.GID,
	}}, asked: map[field]ref{}}
	all := []ref{e.matches(&asked, thread{start, always}), e.meetsPort(&asked, "port", q.Ports, start.dst.port)}
	if q.Src.Present() {
		all = append(all, e.not(e.variable(e.unbound)))
	}
	if q.UID.Present() || q.GID.Present() || q.Direction == Out {
		all = append(all, e.not(e.variable(e.arrival)))
	}
	if q.Link != "" || q.Direction == In {
		all = append(all, e.variable(e.arrival))
	}
	if q.Link != "" {
		by := never
		for i, l := range e.net.Links {
			if l.Name == q.Link {
				by = e.equals(e.link, uint32(i))
			}
		}
		all = append(all, by)
	}
	if !q.All {
		all = append(all, e.opens(), e.not(e.variable(e.known)))
	}
	return e.and(all...)
}

// The errors of this package; use errors.Is. For an invalid plan, errors.Is(err,
// interception.ErrPlan) holds, for an invalid world, errors.Is(err, trace.ErrWorld).
var (
	// ErrTooLarge means that the answer would take more memory than Options.MaxNodes allows. It
	// implies no answer.
	ErrTooLarge = errors.New("too large to decide")
	// ErrQuery means that a query is malformed, or asks about a link that the world does not have.
	ErrQuery = errors.New("invalid query")
)

// Options are the context of a question. The zero value fits a pod with a sidecar.
type Options struct {
	// World is the world of the rules, without them: the rules in question go before the plans of
	// its first namespace, as if they had been applied last. The zero World means [World] of the
	// rules.
	World trace.World
	// Addresses are those of eth0 in the default world, as in [trace.SidecarOptions]: with the
	// addresses of a real pod, the packets of an answer can be traced through that pod. A World
	// that is not zero has addresses of its own.
	Addresses []netip.Prefix
	// MaxNodes bounds the memory: the number of nodes of a decision diagram, of about 40 bytes
	// each; 0 means 4,000,000. An answer that would need more is the error [ErrTooLarge].
	MaxNodes int
}

const defaultMaxNodes = 4_000_000

// world returns the world of the plans, without them.
func (o Options) world(plans ...*interception.Plan) trace.World {
	if len(o.World.Namespaces) > 0 {
		return o.World
	}
	return worldFor(plans, o.Addresses)
}

func (o Options) maxNodes() int {
	if o.MaxNodes <= 0 {
		return defaultMaxNodes
	}
	return o.MaxNodes
}
