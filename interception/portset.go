// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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

// ParsePortSet reads a list of decimal ports separated by commas, such as "80, 443". Blanks around the list and around its
// elements are ignored. An empty list is the empty set, and "*" alone is [AllPorts]. An empty element, a "*" beside other
// elements, a sign, a range or a name is an error that quotes the element.
func ParsePortSet(list string) (PortSet, error) {
	list = strings.TrimSpace(list)
	switch list {
	case "":
		return PortSet{}, nil
	case "*":
		return AllPorts(), nil
	}
	var ports []Port
	for element := range strings.SplitSeq(list, ",") {
		port, err := parsePort(strings.TrimSpace(element))
		if err != nil {
			return PortSet{}, err
		}
		ports = append(ports, port)
	}
	return Ports(ports...), nil
}

func parsePort(element string) (Port, error) {
	switch element {
	case "":
		return 0, errors.New("an element of the list is empty: remove the extra comma")
	case "*":
		return 0, errors.New(`"*" stands for all ports and must be alone: remove the other ports or the "*"`)
	}
	n, err := strconv.ParseUint(element, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not a port: write decimal numbers from 0 to 65535, separated by commas", element)
	}
	return Port(n), nil
}
