// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
)

// File is a kubeconfig. However it is printed, the output is [File.String]. The zero value is an
// empty file.
type File struct {
	// yaml is a function, so that fmt has no token to print: fmt calls no methods on unexported
	// fields, and a File may be in another package's unexported field; with a wrong verb fmt
	// follows pointers.
	yaml     func() string
	redacted string
}

// YAML returns the file's bytes, with the token: write them to a file of mode 0600 and nowhere
// else. Equal input gives equal bytes.
func (f File) YAML() []byte {
	if f.yaml == nil {
		return nil
	}
	return []byte(f.yaml())
}

// String returns the file with REDACTED in place of the token.
func (f File) String() string { return f.redacted }

// Format writes String for every verb, with every flag.
func (f File) Format(s fmt.State, _ rune) { writeRedacted(s, f.String()) }

// LogValue returns String.
func (f File) LogValue() slog.Value { return slog.StringValue(f.String()) }

// MarshalText returns String; JSON encoders use it.
func (f File) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

func render(in Input, token string) string {
	trust := "insecure-skip-tls-verify: true"
	if !in.Insecure {
		trust = "certificate-authority-data: " + scalar(base64.StdEncoding.EncodeToString(in.CA))
	}
	const cluster = "local"
	context := in.Name + "-context"
	lines := []string{
		"apiVersion: v1",
		"kind: Config",
		"clusters:",
		"- name: " + scalar(cluster),
		"  cluster:",
		"    server: " + scalar(in.Server.String()),
		"    " + trust,
		"users:",
		"- name: " + scalar(in.Name),
		"  user:",
		"    token: " + scalar(token),
		"contexts:",
		"- name: " + scalar(context),
		"  context:",
		"    cluster: " + scalar(cluster),
		"    user: " + scalar(in.Name),
		"current-context: " + scalar(context),
	}
	return strings.Join(lines, "\n") + "\n"
}

// The reasons why [Build] and [ServerURL] refuse their input, for errors.Is. No error contains a
// token, or a part of one.
var (
	// ErrServer means that the API server's address is missing, or that clients refuse it.
	ErrServer = errors.New("invalid API server address")
	// ErrCA means that the CA is not a sequence of PEM certificates, or contradicts Insecure.
	ErrCA = errors.New("invalid certificate authority")
	// ErrToken means that the token is empty, or cannot be sent in an HTTP header.
	ErrToken = errors.New("invalid token")
	// ErrName means that the name is empty or not printable.
	ErrName = errors.New("invalid name")
)

// CheckMode refuses unsafe permission bits for a file with a token. The owner must be able to read
// the file and may be able to write it, the group may be able to read it, and nothing else is
// allowed.
func CheckMode(mode fs.FileMode) error {
	if mode&^0o640 != 0 || mode&0o400 == 0 {
		return fmt.Errorf("it is %#o in octal; the file holds a token: write 0600, or 0640 for a group that may read it", mode)
	}
	return nil
}
