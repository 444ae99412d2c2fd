// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"encoding/binary"
	"fmt"
)

// The wire types of Protocol Buffers that the messages use or skip
// (https://protobuf.dev/programming-guides/encoding/).
const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

func appendTag(to []byte, number, wire int) []byte {
	return binary.AppendUvarint(to, uint64(number)<<3|uint64(wire))
}

func appendBytes(to []byte, number int, value []byte) []byte {
	to = binary.AppendUvarint(appendTag(to, number, wireBytes), uint64(len(value)))
	return append(to, value...)
}

// appendText leaves out an empty text, as proto3 does.
func appendText(to []byte, number int, value string) []byte {
	if value == "" {
		return to
	}
	return appendBytes(to, number, []byte(value))
}

// appendNumber leaves out a zero, as proto3 does.
func appendNumber(to []byte, number int, value uint64) []byte {
	if value == 0 {
		return to
	}
	return binary.AppendUvarint(appendTag(to, number, wireVarint), value)
}

// field is a field of a message: text, or value if text is nil.
type field struct {
	number int
	text   []byte
	value  uint64
}

// eachField calls use for each field that holds bytes, a text or a message.
func eachField(data []byte, use func(number int, value []byte) error) error {
	return eachValue(data, func(f field) error {
		if f.text == nil {
			return nil
		}
		return use(f.number, f.text)
	})
}

// eachValue calls use for each field of a message.
func eachValue(data []byte, use func(f field) error) error {
	for at := 0; at < len(data); {
		f, next, err := nextField(data, at)
		if err != nil {
			return err
		}
		if err := use(f); err != nil {
			return err
		}
		at = next
	}
	return nil
}

func nextField(data []byte, at int) (f field, next int, err error) {
	tag, n := binary.Uvarint(data[at:])
	number, wire := tag>>3, tag&7
	if n > 0 && number > 0 && number < 1<<29 {
		value, skipped, length := payload(wire, data[at+n:])
		f, next = field{number: int(number), value: value}, at+n+skipped
		if skipped >= 0 && length <= uint64(len(data)-next) {
			if wire == wireBytes {
				f.text = data[next : next+int(length)]
			}
			return f, next + int(length), nil
		}
	}
	return field{}, 0, fmt.Errorf("%w: no field at byte %d of %d", ErrMessage, at, len(data))
}

// payload returns the number of a field and its length in bytes, or the length of what follows its
// first bytes. The number of these is negative for a field that is invalid.
func payload(wire uint64, data []byte) (value uint64, bytes int, length uint64) {
	switch wire {
	case wireVarint, wireBytes:
		value, bytes = binary.Uvarint(data)
		if bytes <= 0 {
			return 0, -1, 0
		}
		if wire == wireVarint {
			return value, bytes, 0
		}
		return 0, bytes, value
	case wire64:
		return 0, 0, 8
	case wire32:
		return 0, 0, 4
	default:
		return 0, -1, 0
	}
}
