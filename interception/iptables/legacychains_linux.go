// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// The questions about a table of iptables-legacy, which both families number alike
// (IPT_SO_GET_INFO, IPT_SO_GET_ENTRIES), and the layout of their answers: struct ipt_getinfo, and
// struct ipt_get_entries on 64 bits.
const (
	getInfo        = 64
	getEntries     = 65
	tableNameSize  = 32
	infoSize       = 84
	hooksInInfo    = 32
	sizeInInfo     = 80
	entriesInTable = 40
	maxEntries     = 256 << 20
)

// legacyChains reads the chains of tables of iptables-legacy, without a program. It loads no module
// of the kernel, as the tables are there.
func legacyChains(in *os.File, family interception.Family, tables []string) (chains []kernelChain, err error) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return nil, errLayout // the programs know it
	}
	if len(tables) == 0 {
		return nil, nil
	}
	domain, level := unix.AF_INET, unix.SOL_IP
	if family == interception.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	socket := -1
	if err := namespace.Run(in, func() (err error) {
		socket, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.Close(socket)) }()
	for _, name := range tables {
		table, err := readLegacy(socket, level, name)
		if err != nil {
			return nil, err
		}
		more, err := table.chains(family)
		if err != nil {
			return nil, err
		}
		chains = append(chains, more...)
	}
	return chains, nil
}

// readLegacy reads a table. Between the two questions it may change its size, which is an error.
func readLegacy(socket, level int, name string) (legacyTable, error) {
	info := make([]byte, infoSize)
	if copy(info[:tableNameSize-1], name) < len(name) {
		return legacyTable{}, errLayout
	}
	if err := getOption(socket, level, getInfo, info); err != nil {
		return legacyTable{}, err
	}
	size := binary.NativeEndian.Uint32(info[sizeInInfo:])
	if size > maxEntries {
		return legacyTable{}, errLayout
	}
	table := legacyTable{name: name, hooks: map[uint32]string{}}
	valid := binary.NativeEndian.Uint32(info[hooksInInfo:])
	for i, hook := range legacyHooks() {
		if valid&(1<<i) != 0 {
			table.hooks[binary.NativeEndian.Uint32(info[hooksInInfo+4+4*i:])] = hook
		}
	}
	answer := make([]byte, entriesInTable+size)
	copy(answer, name)
	binary.NativeEndian.PutUint32(answer[tableNameSize:], size)
	if err := getOption(socket, level, getEntries, answer); err != nil {
		return legacyTable{}, err
	}
	table.entries = answer[entriesInTable:]
	return table, nil
}

// getOption is getsockopt(2) for options whose value is also a question.
func getOption(socket, level, option int, value []byte) error {
	size := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return os.NewSyscallError("getsockopt", errno)
	}
	if int(size) != len(value) {
		return errLayout
	}
	return nil
}

// legacyTables returns the names in a listing of tables, one in each line.
func legacyTables(listing []byte) []string { return strings.Fields(string(listing)) }
