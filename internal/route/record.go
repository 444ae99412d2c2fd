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

// Record is what has to be remembered about a namespace, as long as the owner has something there: what cannot be seen from it. The zero
// value is empty.
type Record struct {
	// Sysctls are those that the owner has set.
	Sysctls []SysctlRecord
	// Addresses are those that the owner has added, on kernels that do not keep an address's protocol.
	Addresses []AddressRecord
}

// SysctlRecord is a sysctl that the owner has set.
type SysctlRecord struct {
	// Key is as in [interception.Sysctl].
	Key string
	// Before is the value that was there, Value the owner's.
	Before, Value int
}

// AddressRecord is an address that the owner has added.
type AddressRecord struct {
	Device interception.Interface
	Prefix netip.Prefix
}

// IsEmpty reports whether there is nothing to remember.
func (r Record) IsEmpty() bool { return len(r.Sysctls)+len(r.Addresses) == 0 }

// Equal reports whether both remember the same, in whatever order.
func (r Record) Equal(s Record) bool {
	return slices.Equal(slices.Sorted(slices.Values(r.Lines())), slices.Sorted(slices.Values(s.Lines())))
}

// Lines is the record as text, a line for each entry.
func (r Record) Lines() []string {
	var lines []string
	for _, s := range r.Sysctls {
		lines = append(lines, fmt.Sprintf("sysctl %s %d %d", s.Key, s.Before, s.Value))
	}
	for _, a := range r.Addresses {
		lines = append(lines, fmt.Sprintf("address %s %s", a.Device, a.Prefix))
	}
	return lines
}

// ParseRecord reads what Lines wrote. Whoever is root in the namespace may have changed it meanwhile: a line of another form is an error,
// and so is a key that is not that of a valid [interception.Sysctl].
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
		before, err := strconv.Atoi(words[2])
		value, err2 := strconv.Atoi(words[3])
		s := interception.Sysctl{ID: "recorded", Key: words[1], Value: value, Why: "recorded"}
		if err := errors.Join(err, err2, valid(s)); err != nil {
			return err
		}
		r.Sysctls = append(r.Sysctls, SysctlRecord{words[1], before, value})
	case len(words) == 3 && words[0] == "address":
		prefix, err := netip.ParsePrefix(words[2])
		a := interception.Address{ID: "recorded", Device: interception.Interface(words[1]), Prefix: prefix, Why: "recorded"}
		if err := errors.Join(err, valid(a)); err != nil {
			return err
		}
		r.Addresses = append(r.Addresses, AddressRecord{a.Device, prefix})
	default:
		return errors.New("it is neither a sysctl nor an address")
	}
	return nil
}

// valid checks an object as a plan's.
func valid(o interception.Object) error {
	return (&interception.Plan{Owner: "recorded-plan", Objects: []interception.Object{o}}).Validate()
}
