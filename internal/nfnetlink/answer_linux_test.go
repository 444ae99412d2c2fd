// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// errorMessage is a capped NLMSG_ERROR that ends in attributes.
func errorMessage(sequence uint32, errno syscall.Errno, attributes ...byte) []byte {
	flags := uint16(unix.NLM_F_CAPPED)
	if len(attributes) > 0 {
		flags |= unix.NLM_F_ACK_TLVS
	}
	return rawErrorMessage(sequence, -int32(errno), flags, unix.SizeofNlMsghdr, attributes)
}

// rawErrorMessage is an NLMSG_ERROR about a message of a length, whose header is followed by rest.
func rawErrorMessage(sequence uint32, code int32, flags uint16, original uint32, rest []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(36+len(rest)))
	m = binary.NativeEndian.AppendUint16(m, unix.NLMSG_ERROR)
	m = binary.NativeEndian.AppendUint16(m, flags)
	m = binary.NativeEndian.AppendUint32(m, sequence)
	m = binary.NativeEndian.AppendUint32(m, 0)
	m = binary.NativeEndian.AppendUint32(m, uint32(code))
	m = binary.NativeEndian.AppendUint32(m, original)
	m = append(m, make([]byte, 12)...)
	return append(m, rest...)
}

func why() []byte { return []byte{8, 0, unix.NLMSGERR_ATTR_MSG, 0, 'w', 'h', 'y', 0} }

func refusedBy(sequence uint32, errno syscall.Errno, text string) answer {
	return answer{sequence, &kernel.RefusedError{Errno: errno, Text: text}}
}

func TestAppendAnswers(t *testing.T) {
	t.Parallel()
	offset := []byte{8, 0, unix.NLMSGERR_ATTR_OFFS, 0, 1, 0, 0, 0}
	other := binary.NativeEndian.AppendUint32(nil, 16)
	other = append(other, unix.NLMSG_DONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	for name, test := range map[string]struct {
		datagram []byte
		want     []answer
	}{
		"nothing":            {},
		"less than a header": {datagram: []byte{1, 2, 3}},
		"acknowledgement":    {errorMessage(7, 0), []answer{{sequence: 7}}},
		"error":              {errorMessage(7, unix.EINVAL), []answer{refusedBy(7, unix.EINVAL, "")}},
		"explained":          {errorMessage(7, unix.EINVAL, why()...), []answer{refusedBy(7, unix.EINVAL, "why")}},
		"offset first":       {errorMessage(7, unix.EINVAL, append(offset, why()...)...), []answer{refusedBy(7, unix.EINVAL, "why")}},
		"two": {
			append(errorMessage(7, unix.EINVAL), errorMessage(8, 0)...),
			[]answer{refusedBy(7, unix.EINVAL, ""), {sequence: 8}},
		},
		"other types": {append(other, errorMessage(8, 0)...), []answer{{sequence: 8}}},
		"quoted message": {
			rawErrorMessage(7, -int32(unix.EINVAL), unix.NLM_F_ACK_TLVS, 16+4, append([]byte{1, 2, 3, 4}, why()...)),
			[]answer{refusedBy(7, unix.EINVAL, "why")},
		},
		"broken explanation": {errorMessage(7, unix.EINVAL, 99, 0, unix.NLMSGERR_ATTR_MSG, 0), []answer{refusedBy(7, unix.EINVAL, "")}},
		"short attribute":    {errorMessage(7, unix.EINVAL, 2, 0, unix.NLMSGERR_ATTR_MSG, 0), []answer{refusedBy(7, unix.EINVAL, "")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := appendAnswers(nil, test.datagram)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestAppendAnswersBroken(t *testing.T) {
	t.Parallel()
	short := errorMessage(1, 0)
	binary.NativeEndian.PutUint32(short, 20)
	long := errorMessage(1, 0)
	binary.NativeEndian.PutUint32(long, 1000)
	for name, datagram := range map[string][]byte{
		"message of no length":    make([]byte, 16),
		"longer than the read":    long,
		"shorter than an error":   short,
		"positive error":          rawErrorMessage(1, 5, 0, 16, nil),
		"quoted message too long": rawErrorMessage(1, -5, unix.NLM_F_ACK_TLVS, 1000, nil),
		"quoted message negative": rawErrorMessage(1, -5, unix.NLM_F_ACK_TLVS, 3, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := appendAnswers(nil, datagram); err == nil {
				t.Errorf("got %v, want an error", got)
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	const begin, first, last = beginSequence, firstSequence, firstSequence + 2
	for name, test := range map[string]struct {
		answers []answer
		refused int // the index of the message; 99 for another outcome
		want    error
	}{
		"acknowledged":               {answers: []answer{{sequence: last}}, refused: 99},
		"silence":                    {refused: 99, want: ErrNoAnswer},
		"acknowledgement of another": {answers: []answer{{sequence: first}, {sequence: 77}}, refused: 99, want: ErrNoAnswer},
		"error":                      {answers: []answer{refusedBy(last, unix.EINVAL, "")}, refused: 2, want: unix.EINVAL},
		"error and acknowledgement": {
			answers: []answer{refusedBy(first, unix.EINVAL, ""), {sequence: last}}, refused: 0, want: unix.EINVAL,
		},
		"acknowledgement before error": {
			answers: []answer{{sequence: last}, refusedBy(begin, unix.ENOMEM, "")}, refused: -1, want: unix.ENOMEM,
		},
		"commit failed": {
			answers: []answer{refusedBy(begin, unix.ENOMEM, ""), {sequence: last}}, refused: -1, want: unix.ENOMEM,
		},
		"the first of two": {
			answers: []answer{refusedBy(first, unix.EEXIST, ""), refusedBy(first+1, unix.EINVAL, "")}, refused: 0, want: unix.EEXIST,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := outcome(3, test.answers)
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			refused := 99
			var refusal *RefusedError
			if errors.As(err, &refusal) {
				refused = refusal.Message
			}
			if refused != test.refused {
				t.Errorf("refused message %d, want %d", refused, test.refused)
			}
		})
	}
}

func FuzzAppendAnswers(f *testing.F) {
	f.Add(errorMessage(7, unix.EINVAL, why()...))
	f.Add(rawErrorMessage(7, -1, unix.NLM_F_ACK_TLVS, 20, append([]byte{1, 2, 3, 4}, why()...)))
	f.Add(append(errorMessage(1, 0), 1, 2, 3))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		answers, err := appendAnswers(nil, datagram)
		if err != nil {
			return
		}
		if len(answers) > len(datagram)/36 {
			t.Errorf("%d answers in %d bytes", len(answers), len(datagram))
		}
		for _, a := range answers {
			if a.refused != nil && (a.refused.Errno == 0 || a.refused.Errno > 1<<31) {
				t.Errorf("errno %d", a.refused.Errno)
			}
		}
	})
}
