// SPDX-License-Identifier: Apache-2.0

package interception

import "fmt"

// Port is a TCP or UDP port number.
type Port uint16

// PortSet is a set of ports: none (the zero value), all ([AllPorts]), or some ([Ports], [PortRange], [ParsePortSet]).
type PortSet = RangeSet[Port]

// AllPorts is the set of all 65,536 ports, 0 included.
func AllPorts() PortSet { return RangesOf(Range[Port]{0, ^Port(0)}) }

// Ports is the set of the given ports.
func Ports(ports ...Port) PortSet { return numbers(ports) }

// PortRange is the set of the ports from first to last, both included; with first above last it is empty.
func PortRange(first, last Port) PortSet {
	if first > last {
		return PortSet{}
	}
	return RangesOf(Range[Port]{first, last})
}

// ParsePortSet reads a list of decimal ports and ranges of them, separated by commas, such as "80, 8000-8999": what PortSet.String prints
// is read back to an equal set. Blanks around the list and around its elements are ignored. An empty list is the empty set, and "*" alone is
// [AllPorts]. An empty element, a "*" beside other elements, a sign, a range that is upside down or a name is an error that quotes the element.
func ParsePortSet(list string) (PortSet, error) {
	return ParseRangeSet(list, func(element string) (Range[Port], error) {
		ports, err := parseRange[Port](element)
		if err != nil {
			err = fmt.Errorf("%q is no port and no range of ports: write decimal numbers from 0 to 65535, such as 80,8000-8999", element)
		}
		return ports, err
	})
}
