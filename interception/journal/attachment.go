// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"strings"
)

// Attachment is a container's interface in a network, as the CNI specification has it
// (https://www.cni.dev/docs/spec/#section-2-execution-protocol).
type Attachment struct {
	// Network is the name of the network configuration.
	Network string
	// ContainerID is CNI_CONTAINERID.
	ContainerID string
	// Interface is CNI_IFNAME.
	Interface string
}

// String is network, container and interface, with blanks between them.
func (a Attachment) String() string { return a.Network + " " + a.ContainerID + " " + a.Interface }

// What an error of a [Journal] is about, for errors.Is.
var (
	// ErrAttachment means that an attachment's network, id or interface is none that the CNI specification allows, or too long for a file's
	// name.
	ErrAttachment = errors.New("no attachment")
	// ErrRecord means that a record is none: it has no plan, is damaged, too large, of another version or of another attachment.
	ErrRecord = errors.New("no record")
	// ErrDirectory means that the journal's directory is not given by an absolute path, or that others than its owner may write there.
	ErrDirectory = errors.New("no journal")
)

const (
	// maxName is of the network's name and of the container's id, which is 64 in the runtimes of today: Linux takes a file's name of 255
	// bytes, and a temporary one has 21 more.
	maxName = 104
	// maxInterface is the kernel's IFNAMSIZ without the NUL.
	maxInterface = 15
	separator    = "@" // in none of the parts
	suffix       = ".json"
)

// fileName is the name of the attachment's file.
func (a Attachment) fileName() (string, error) {
	switch {
	case !isName(a.Network, maxName):
		return "", fmt.Errorf("%w: network %q", ErrAttachment, a.Network)
	case !isName(a.ContainerID, maxName):
		return "", fmt.Errorf("%w: container id %q", ErrAttachment, a.ContainerID)
	case !isName(a.Interface, maxInterface):
		return "", fmt.Errorf("%w: interface %q", ErrAttachment, a.Interface)
	}
	return a.Network + separator + a.ContainerID + separator + a.Interface + suffix, nil
}

// AttachmentOf is the attachment whose record has the name in a journal; false for any other file.
func AttachmentOf(fileName string) (Attachment, bool) {
	base, isRecord := strings.CutSuffix(fileName, suffix)
	parts := strings.Split(base, separator)
	if !isRecord || len(parts) != 3 {
		return Attachment{}, false
	}
	a := Attachment{parts[0], parts[1], parts[2]}
	_, err := a.fileName()
	return a, err == nil
}

// isName says whether a text is a name as the specification has it, of at most the length: a letter or digit, and behind it letters,
// digits, '_', '.' and '-'. The kernel would take more as an interface's name; no runtime uses it.
func isName(text string, length int) bool {
	for i, c := range []byte(text) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return text != "" && len(text) <= length
}
