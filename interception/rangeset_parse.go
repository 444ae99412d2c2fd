// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseRangeSet reads a list separated by commas, with blanks around the list and its elements: "" is the empty set, and "*" that of all. The
// caller's one reads any other element. It is for lists whose elements are not those that [ParsePortSet] or [ParseGIDSet] take.
func ParseRangeSet[T ~uint16 | ~uint32](list string, one func(element string) (Range[T], error)) (RangeSet[T], error) {
	list = strings.TrimSpace(list)
	switch list {
	case "":
		return RangeSet[T]{}, nil
	case "*":
		return RangesOf(Range[T]{0, ^T(0)}), nil
	}
	var ranges []Range[T]
	for element := range strings.SplitSeq(list, ",") {
		r, err := parseElement(strings.TrimSpace(element), one)
		if err != nil {
			return RangeSet[T]{}, err
		}
		ranges = append(ranges, r)
	}
	return RangesOf(ranges...), nil
}

func parseElement[T ~uint16 | ~uint32](element string, one func(element string) (Range[T], error)) (Range[T], error) {
	switch element {
	case "":
		return Range[T]{}, errors.New("an element of the list is empty: remove the extra comma")
	case "*":
		return Range[T]{}, errors.New(`"*" stands for all and must be alone: remove the other elements or the "*"`)
	}
	return one(element)
}

// parseRange reads what Range prints.
func parseRange[T ~uint16 | ~uint32](text string) (Range[T], error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := parseNumber[T](from)
	if err != nil {
		return Range[T]{}, err
	}
	last, err := parseNumber[T](to)
	if err == nil && first > last {
		err = fmt.Errorf("range %s is upside down", text)
	}
	return Range[T]{first, last}, err
}

// parseNumber reads a decimal number without a sign.
func parseNumber[T ~uint16 | ~uint32](text string) (T, error) {
	bits := 32
	if T(0)-1 == T(1<<16-1) {
		bits = 16
	}
	n, err := strconv.ParseUint(text, 10, bits)
	return T(n), err
}
