// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"slices"
	"strings"
)

// Interface is the name of a network interface, such as "lo" or "eth0": 1 to 15 bytes (IFNAMSIZ
// less its terminator), a letter followed by letters, digits, '_', '.' or '-'.
type Interface string

// Validate returns an error that wraps [ErrName] for an invalid name.
func (i Interface) Validate() error {
	return validateName("interface", string(i), maxInterface, lower+upper, lower+upper+digits+"_.-")
}

// validatePattern also accepts a '*' at the end, which stands for any rest of the name.
func (i Interface) validatePattern() error {
	if stem, ok := strings.CutSuffix(string(i), "*"); ok {
		return validateName("interface", stem, maxInterface-1, lower+upper, lower+upper+digits+"_.-")
	}
	return i.Validate()
}

// InterfaceSet is an immutable, sorted set of interface names and patterns. A pattern is a prefix
// and '*': "eth*" stands for every name that begins with "eth". No member covers another, so that
// equal sets have equal members. The zero value is empty.
type InterfaceSet struct {
	names []Interface
}

// Interfaces returns the set of the given names and patterns, without those that another pattern
// covers. [Build] refuses invalid ones.
func Interfaces(names ...Interface) InterfaceSet {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	return InterfaceSet{slices.DeleteFunc(slices.Clone(sorted), func(name Interface) bool {
		return name.validatePattern() == nil && slices.ContainsFunc(sorted, func(other Interface) bool {
			stem, pattern := strings.CutSuffix(string(other), "*")
			return pattern && other != name && strings.HasPrefix(string(name), stem) && other.validatePattern() == nil
		})
	})}
}

// ParseInterfaceSet parses a list of interface names separated by commas. Blanks around the list
// and its elements are ignored; an empty list is the empty set. An empty element or an invalid name
// is an error that quotes it.
func ParseInterfaceSet(list string) (InterfaceSet, error) {
	list = strings.TrimSpace(list)
	if list == "" {
		return InterfaceSet{}, nil
	}
	names, err := parseList(list, func(name string) (Interface, error) {
		if name == "" {
			return "", nameError("interface", name, "an element of the list is empty: remove the extra comma")
		}
		return Interface(name), Interface(name).Validate()
	})
	return Interfaces(names...), err
}

// IsEmpty reports whether the set has no member.
func (s InterfaceSet) IsEmpty() bool { return len(s.names) == 0 }

// Contains reports whether name is a member or matches a pattern of the set.
func (s InterfaceSet) Contains(name Interface) bool {
	return slices.ContainsFunc(s.names, func(member Interface) bool {
		stem, pattern := strings.CutSuffix(string(member), "*")
		return member == name || pattern && strings.HasPrefix(string(name), stem)
	})
}

// Names returns the members, names and patterns, sorted. The caller owns the slice.
func (s InterfaceSet) Names() []Interface { return slices.Clone(s.names) }

// Equal reports whether both sets have the same members.
func (s InterfaceSet) Equal(t InterfaceSet) bool { return slices.Equal(s.names, t.names) }

// String returns the names, separated by commas.
func (s InterfaceSet) String() string {
	words := make([]string, len(s.names))
	for i, name := range s.names {
		words[i] = string(name)
	}
	return strings.Join(words, ",")
}
