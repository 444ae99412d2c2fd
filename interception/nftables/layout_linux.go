// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// layout reads the owner's table back as the layout that [lower.Chains] gives a plan.
type layout struct {
	*kernelTable

	sets       []interception.Object
	tables     []interception.Table
	deviations []interception.Deviation
	owners     map[interception.SetName]map[netip.Addr]string // of the members of live sets of addresses
}

func (l *layout) deviates(at, want, got string) {
	l.deviations = append(l.deviations, interception.Deviation{At: at, Want: want, Got: got})
}

// readLayout decodes the owner's table. Without a table (nil t) the layout is empty.
func readLayout(t *kernelTable) *layout {
	l := &layout{kernelTable: t}
	if t == nil {
		return l
	}
	if t.flags&dormant != 0 {
		l.deviates("table inet "+t.name, "active", "dormant: no packet is given to its chains")
	}
	for i := range t.sets {
		l.addSet(&t.sets[i])
	}
	for _, c := range t.chains {
		if c.base {
			l.addBase(c)
		} else {
			l.addChain(c)
		}
	}
	return l
}

func (l *layout) objects() []interception.Object {
	objects := l.sets
	for _, t := range l.tables {
		objects = append(objects, t)
	}
	return objects
}

// table returns the table of a kind. The first chain of a kind creates it.
func (l *layout) table(kind interception.TableKind) *interception.Table {
	i := slices.IndexFunc(l.tables, func(t interception.Table) bool { return t.Kind == kind })
	if i < 0 {
		i = len(l.tables)
		l.tables = append(l.tables, interception.Table{Kind: kind})
	}
	return &l.tables[i]
}

// planSet is a set of the plan that a kernel's set represents.
type planSet struct {
	interception.SetRef

	bits int // prefix length of the members; all bits for intervals
}

// planSet identifies the plan's set by the name and the length of the members. If several of the
// kernel's sets match the same one, none of them does.
func (t *kernelTable) planSet(s *kernelSet) (planSet, bool) {
	set, ok := s.planSet()
	for i := range t.sets {
		other, isOne := t.sets[i].planSet()
		ok = ok && (!isOne || other.Name != set.Name || t.sets[i].name == s.name)
	}
	return set, ok
}

func (s *kernelSet) planSet() (planSet, bool) {
	name, bits, ok := lower.ParseSetName(s.name)
	family := map[uint32]interception.Family{4: interception.IPv4, 16: interception.IPv6}[s.keyLength]
	all := 8 * int(s.keyLength)
	switch {
	case bits == 0:
		bits = all
	case bits > all || s.flags&unix.NFT_SET_INTERVAL != 0:
		ok = false
	}
	ref := interception.SetRef{Name: name, Family: family}
	return planSet{ref, bits}, ok && family != interception.BothFamilies && s.flags&unix.NFT_SET_ANONYMOUS == 0
}

func (l *layout) addSet(s *kernelSet) {
	if s.flags&unix.NFT_SET_ANONYMOUS != 0 || s.name == ledgerSet {
		return // part of a rule, or not the plan's
	}
	ref, ok := l.planSet(s)
	if !ok {
		l.deviates("set "+printable(s.name), "", fmt.Sprintf("a set of %d bytes", s.keyLength))
		return
	}
	live := s.flags&unix.NFT_SET_CONSTANT == 0
	set := interception.Set{Name: ref.Name, Family: ref.Family, Live: live, Addresses: live && s.flags == liveSetFlags(true)}
	if _, _, why, ok := lower.ParseComment("set 00000000 " + s.comment); ok {
		set.Why = why
	}
	spans, ok := s.spans()
	if networks, all := underMask(spans, ref.bits); s.flags&unix.NFT_SET_INTERVAL == 0 {
		spans, ok = networks, ok && all
	}
	if !ok {
		l.deviates("set "+string(ref.Name), "plain members", s.unusual())
	}
	set.Members = prefixesOf(spans)
	if set.Addresses && len(s.elements) > 0 {
		l.addOwners(set.Name, s.elements)
	}
	l.sets = append(l.sets, set)
}

func (l *layout) addOwners(set interception.SetName, elements []kernelElement) {
	if l.owners == nil {
		l.owners = map[interception.SetName]map[netip.Addr]string{}
	}
	l.owners[set] = make(map[netip.Addr]string, len(elements))
	for _, e := range elements {
		if address, ok := netip.AddrFromSlice(e.key); ok {
			l.owners[set][address] = e.comment
		}
	}
}

// unusual describes what a set has that no set of a plan has.
func (s *kernelSet) unusual() string {
	if s.strange != "" {
		return "a set " + s.strange
	}
	return "a member with a timeout, a statement, a flag, or bits that its mask clears"
}

// tableKind parses the kind at the beginning of a chain's name.
func tableKind(name, separator string) (kind interception.TableKind, rest string, ok bool) {
	word, rest, found := strings.Cut(name, separator)
	for _, kind := range interception.TableKinds() {
		if found && kind.String() == word {
			return kind, rest, true
		}
	}
	return 0, "", false
}

func (l *layout) addChain(c kernelChain) {
	kind, name, ok := tableKind(c.name, "-")
	if !ok || interception.ChainName(name).Validate() != nil {
		l.deviates("chain "+printable(c.name), "", l.chainText(c))
		return
	}
	table := l.table(kind)
	table.Chains = append(table.Chains, interception.Chain{Name: interception.ChainName(name), Rules: l.rules(kind, c)})
}

// addBase adds the entries of a base chain. Its hook and priority show what it does; its name only
// distinguishes the tables at that hook.
func (l *layout) addBase(c kernelChain) {
	rest, ok := strings.CutPrefix(c.name, "hook.")
	kind, _, ok2 := tableKind(rest, ".")
	hook, ok3 := hookOf(c.hook)
	if !ok || !ok2 || !ok3 || !slices.Contains(kind.Hooks(), hook) {
		l.deviates("chain "+printable(c.name), "", l.chainText(c))
		return
	}
	at, base := fmt.Sprintf("%s hook %s", kind, hook), lower.StandardBase(kind, hook)
	if c.kind != base.Type {
		l.deviates(at, "type "+base.Type, "type "+printable(c.kind))
	}
	if c.policy != verdictAccept {
		l.deviates(at, "policy accept", "policy "+policyOf(c))
	}
	table := l.table(kind)
	for _, r := range l.rules(kind, c) {
		jump, ok := r.Action.(interception.Jump)
		if !ok {
			l.deviates(at, "", ruleText(r))
			continue
		}
		table.Entries = append(table.Entries, interception.Entry{
			ID: r.ID, Hook: hook, Offset: c.priority - base.Priority, Match: r.Match, Chain: jump.Chain, Why: r.Why,
		})
	}
}

func (l *layout) rules(kind interception.TableKind, c kernelChain) []interception.Rule {
	var rules []folded
	for _, k := range c.rules {
		f := folded{Rule: l.rule(k, l.planSet)}
		_, f.hash, _, _ = lower.ParseComment(k.comment)
		if jump, ok := f.Action.(interception.Jump); ok {
			f.Action = localJump(kind, jump)
		}
		f.kernel = []string{kernelText(kind, f.Rule)}
		rules = append(rules, f)
	}
	return fold(kind, rules)
}

// localJump returns a jump in the plan's form: to a chain of the same kind.
func localJump(kind interception.TableKind, to interception.Jump) interception.Action {
	of, name, ok := tableKind(string(to.Chain), "-")
	if !ok || of != kind || interception.ChainName(name).Validate() != nil {
		return interception.Opaque{Text: "jump " + printable(string(to.Chain))}
	}
	return interception.Jump{Chain: interception.ChainName(name)}
}

// kernelText returns a rule in the kernel's form, with what [localJump] removes from the name.
func kernelText(kind interception.TableKind, r interception.Rule) string {
	if jump, ok := r.Action.(interception.Jump); ok {
		return lowered(kind, interception.Rule{Match: r.Match, Action: jump})[0]
	}
	return loweredText(r.Match, r.Action)
}

func ruleText(r interception.Rule) string {
	if r.Match.IsZero() {
		return fmt.Sprintf("any -> %s", r.Action)
	}
	return loweredText(r.Match, r.Action)
}

// chainText returns the text of a chain that no plan has.
func (l *layout) chainText(c kernelChain) string {
	text := "a chain"
	if c.base {
		text = fmt.Sprintf("a chain of type %s in hook %s with priority %d and policy %s",
			printable(c.kind), hookName(l.family, c.hook), c.priority, policyOf(c))
	}
	words := make([]string, len(c.rules))
	for i, k := range c.rules {
		words[i] = ruleText(l.rule(k, l.planSet))
	}
	return text + ": " + strings.Join(words, "; ")
}

func policyOf(c kernelChain) string {
	if c.policy == verdictAccept {
		return "accept"
	}
	return "drop"
}

// hookOf returns the hook of a number ([hookNumber]).
func hookOf(number uint32) (interception.Hook, bool) {
	hooks := interception.Hooks()
	if int64(number) >= int64(len(hooks)) {
		return 0, false
	}
	return hooks[number], true
}

// hookName returns nft's word for a hook of a family.
func hookName(family uint8, number uint32) string {
	if family == unix.NFPROTO_NETDEV {
		if words := []string{"ingress", "egress"}; int64(number) < int64(len(words)) {
			return words[number]
		}
		return fmt.Sprintf("%d", number)
	}
	if hook, ok := hookOf(number); ok {
		return hook.String()
	}
	if number == inetIngress {
		return "ingress"
	}
	return fmt.Sprintf("%d", number)
}

const inetIngress = 5 // NF_INET_INGRESS
