// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Record is what the namespace itself does not show, and has to be remembered as long as the owner
// has something in it. The zero value is empty.
type Record struct {
	// Sysctls are those of the owner's plan. While a sysctl's value changes, there are two of its key:
	// the kernel has either value.
	Sysctls []SysctlRecord
	// Addresses are those that the owner has added, on kernels that do not keep their protocol.
	Addresses []AddressRecord
	// Found are addresses of the plan that existed before, and do not belong to the owner.
	Found []AddressRecord
	// FoundObjects are routes and policy rules of the plan that existed before, and do not belong to
	// the owner, as [textOf] writes them.
	FoundObjects []string
}

// SysctlRecord is a sysctl of the owner's plan.
type SysctlRecord struct {
	// Key is as in [interception.Sysctl].
	Key string
	// Before is the former value, Value the owner's; they may be the same.
	Before, Value int
	// New means that the sysctl did not exist before: it comes and goes with a link of the plan.
	New bool
}

// AddressRecord is an address that the owner has added.
type AddressRecord struct {
	Device interception.Interface
	Prefix netip.Prefix
}

// IsEmpty reports whether there is nothing to remember.
func (r Record) IsEmpty() bool {
	return len(r.Sysctls)+len(r.Addresses)+len(r.Found)+len(r.FoundObjects) == 0
}

// With returns r with the entries that only other has.
func (r Record) With(other Record) Record {
	return Record{
		Sysctls: union(r.Sysctls, other.Sysctls), Addresses: union(r.Addresses, other.Addresses), Found: union(r.Found, other.Found),
		FoundObjects: union(r.FoundObjects, other.FoundObjects),
	}
}

func union[T comparable](list, others []T) []T {
	sum := slices.Clone(list)
	for _, one := range others {
		if !slices.Contains(list, one) {
			sum = append(sum, one)
		}
	}
	return sum
}

// Equal reports whether both remember the same, in any order.
func (r Record) Equal(s Record) bool {
	return slices.Equal(slices.Sorted(slices.Values(r.Lines())), slices.Sorted(slices.Values(s.Lines())))
}

// GoesAhead reports whether r has to be kept before a change begins, because r alone has something
// that known, an earlier record, lacks: a former value of a sysctl, or that an address is the
// owner's.
func (r Record) GoesAhead(known Record) bool {
	return slices.ContainsFunc(r.Sysctls, func(s SysctlRecord) bool {
		return !s.New && s.Before != s.Value && !slices.Contains(known.Sysctls, s)
	}) || slices.ContainsFunc(r.Addresses, func(a AddressRecord) bool { return !slices.Contains(known.Addresses, a) })
}

// Lines returns the record as text, a line for each entry.
func (r Record) Lines() []string {
	var lines []string
	for _, s := range r.Sysctls {
		before := strconv.Itoa(s.Before)
		if s.New {
			before = noValue
		}
		lines = append(lines, fmt.Sprintf("sysctl %s %s %d", s.Key, before, s.Value))
	}
	for _, a := range r.Addresses {
		lines = append(lines, fmt.Sprintf("address %s %s", a.Device, a.Prefix))
	}
	for _, a := range r.Found {
		lines = append(lines, fmt.Sprintf("found %s %s", a.Device, a.Prefix))
	}
	for _, text := range r.FoundObjects {
		lines = append(lines, "found "+text)
	}
	return lines
}

// noValue represents the missing value of a sysctl that did not exist.
const noValue = "-"

// ParseRecord parses the output of Lines. The root user of the namespace may have changed it
// meanwhile: a line of another form is an error, and so is a key that no valid
// [interception.Sysctl] has.
func ParseRecord(lines []string) (Record, error) {
	var r Record
	for _, line := range lines {
		if err := r.parse(strings.Fields(line)); err != nil {
			return Record{}, fmt.Errorf("recorded %q: %w", line, err)
		}
	}
	return r, nil
}

func (r *Record) parse(words []string) error {
	switch {
	case len(words) == 4 && words[0] == "sysctl":
		return r.parseSysctl(words[1], words[2], words[3])
	case len(words) == 3 && words[0] == "address":
		return parseAddress(&r.Addresses, words[1], words[2])
	case len(words) == 3 && words[0] == "found":
		return parseAddress(&r.Found, words[1], words[2])
	case len(words) > 3 && words[0] == "found" && (words[1] == "route" || words[1] == "policy"):
		return r.parseFoundObject(strings.Join(words[1:], " "))
	}
	return errors.New("it is neither a sysctl nor an address, a route or a policy rule")
}

func (r *Record) parseSysctl(key, before, value string) (err error) {
	s := SysctlRecord{Key: key, New: before == noValue}
	if !s.New {
		s.Before, err = strconv.Atoi(before)
	}
	number, err2 := strconv.Atoi(value)
	s.Value = number
	if err := errors.Join(err, err2, valid(s.object(number))); err != nil {
		return err
	}
	r.Sysctls = append(r.Sysctls, s)
	return nil
}

func parseAddress(list *[]AddressRecord, device, prefix string) error {
	parsed, err := netip.ParsePrefix(prefix)
	a := AddressRecord{interception.Interface(device), parsed}
	if err := errors.Join(err, valid(a.object())); err != nil {
		return err
	}
	*list = append(*list, a)
	return nil
}

// parseFoundObject refuses characters that could have another meaning where a backend writes the
// record.
func (r *Record) parseFoundObject(text string) error {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return errors.New("a route or a policy rule has no such characters")
	}
	r.FoundObjects = append(r.FoundObjects, text)
	return nil
}

// textOf returns all that an object puts into the kernel, as [interception.Plan.String] writes it.
// Diff compares the same text.
func textOf(o interception.Object) string {
	_, line, _ := strings.Cut((&interception.Plan{Owner: "recorded", Objects: []interception.Object{o}}).String(), "\n")
	text, _, _ := strings.Cut(line, "  # ")
	return text
}

func (s SysctlRecord) object(value int) interception.Sysctl {
	return interception.Sysctl{ID: "recorded", Key: s.Key, Value: value, Why: "recorded"}
}

func (a AddressRecord) object() interception.Address {
	return interception.Address{ID: "recorded", Device: a.Device, Prefix: a.Prefix, Why: "recorded"}
}

func valid(o interception.Object) error {
	return (&interception.Plan{Owner: "recorded-plan", Objects: []interception.Object{o}}).Validate()
}
