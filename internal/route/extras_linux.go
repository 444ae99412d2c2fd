// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/hex"
	"strconv"
)

// extras are what an object of the kernel has beyond what plans have, as text; "" is nothing.
type extras string

func (e *extras) add(name, value string) {
	if *e != "" {
		*e += ", "
	}
	*e += extras(name + " " + value)
}

// byte adds a number that is 0 in objects of plans.
func (e *extras) byte(name string, value byte) {
	if value != 0 {
		e.add(name, strconv.Itoa(int(value)))
	}
}

// attribute adds one that objects of plans have not.
func (e *extras) attribute(kind uint16, value []byte) {
	e.add("attribute "+strconv.Itoa(int(kind)), hex.EncodeToString(value))
}
