// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"encoding/binary"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Answering returns a namespace without a kernel: it answers each datagram with those that the
// function returns. It has no sysctls. Changes by the library seem to succeed, and do nothing.
func Answering(answers func(datagram []byte) [][]byte) kernel.Namespace { return answering{answers} }

// Messages answers a datagram's first message: with one message for each body, and the list's end.
func Messages(datagram []byte, kind uint16, bodies ...[]byte) [][]byte {
	var answer []byte
	for _, body := range bodies {
		answer = appendMessage(answer, datagram, kind, body)
	}
	return [][]byte{appendMessage(answer, datagram, unix.NLMSG_DONE, make([]byte, 4))}
}

func appendMessage(b, datagram []byte, kind uint16, body []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_MULTI)
	b = append(b, datagram[8:12]...) // the sequence number
	b = append(b, 0, 0, 0, 0)
	b = append(b, body...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}

type answering struct {
	answers func(datagram []byte) [][]byte
}

func (a answering) Dial(int) (kernel.Conn, error)     { return &queue{answers: a.answers}, nil }
func (a answering) ReadSysctl(string) (string, error) { return "", fs.ErrNotExist }
func (a answering) WriteSysctl(string, string) error  { return fs.ErrNotExist }
func (a answering) Change(string, func() error) error { return nil }

// queue is a socket with answers to read.
type queue struct {
	answers func(datagram []byte) [][]byte
	waiting [][]byte
}

func (q *queue) Send(datagram []byte) error {
	q.waiting = append(q.waiting, q.answers(datagram)...)
	return nil
}

func (q *queue) Receive() ([]byte, error) {
	if len(q.waiting) == 0 {
		return nil, unix.EAGAIN
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	return next, nil
}

func (q *queue) Close() error { return nil }
